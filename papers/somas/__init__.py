"""SOMAS (Lamprou et al., MLSys 2023): memory of a network whose operators run on several streams.

``streams``   a step graph split over streams, for graphs that come without

Its first half decides from the graph which tensors may safely share memory: `stowplan.scheduling.safe_reuse`, in the
core, as ``stowplan pack --graph --streams`` needs it. Its second half places them, contiguous ones side by side:
`stowplan.packing`, with ``Problem(apart=..., contiguous=...)`` and the solver ``by_conflicts``.
"""
