"""What do other papers do? What is theirs alone, one folder a paper; nothing in the product imports it.

``pisarchyk_lee``   shared objects: buffers used one after the other, instead of offsets
``nntrainer``       NNTrainer's step from a list of layers, and its memory planners V1 and V3
``olla``            the integer program for an order, and order and addresses together
``mlsys2023``       min-cut and selective recomputation, reversible layers, tensor and sequence parallelism

Solvers among these are found by their names: setup.cfg lists them as entry points.
"""
