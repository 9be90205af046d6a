"""Papers of MLSys 2023 on memory of training, each compared with what the core does.

``cheap``        fusion-aware checkpointing's minimum cut (He & Yu), as the scheduling solver ``cheap``
``selective``    attention's products alone are recomputed (Korthikanti et al., section 5), as ``selective``
``parallel``     tensor and sequence parallelism of the same paper (section 4.2), over MPI
``reversible``   layers whose inputs follow from their outputs (RevBiFPN: Chiley et al.)

In the core lives recomputation at a budget, from any of these as a start (`stowplan.scheduling`).
"""
