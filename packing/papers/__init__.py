"""Systems of other papers, to compare with; nothing else imports them. An import of one registers its solvers.

``nntrainer``   the memory planners V1 and V3 of NNTrainer, as packing solvers (``stowplan pack --compare``)
``objects``     shared objects, which are used one after the other, instead of offsets
"""
