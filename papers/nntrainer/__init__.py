"""NNTrainer (Moon et al. 2022, arXiv 2206.04688): on-device training whose memory is planned from the list of layers.

``layers``     a step from layers: lifespans of tensors by execution orders, as a step graph
``planners``   where its planners V1 and V3 put the tensors, as packing solvers ``nntrainer_v1`` and ``nntrainer_v3``

In the core lives what a schedule does with such a step: swap, early updates and recomputation (`stowplan.scheduling`).
"""
