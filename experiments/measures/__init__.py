"""What the figures measure with: their data and networks' steps, recordings, timing, and the tables they are shown in.

======================  ================================================================================================
``runner``              a figure's command: its options; runs its cells
``kept``                results kept as files, so that a command goes on where it was interrupted
``apart``               asks a function in a process of its own; ``ranks``: programs on ranks of MPI
``contest``             what the contests of allocators have in common
``peers``               other allocators of the host; ``usage``: CPU time, faults and memory of a command
``medians``             how well a median is known
``data``                what the networks read; ``workload``: a network's step, to be run again and again
``recordings``          profiles of steps, recorded or predicted; ``step_graphs``: the same for step graphs
``interleave``          runs several steps slice by slice; ``paired_timing``: times steps beside each other with it
``scheduled_steps``     steps under a scheduler beside Chainer's own: time, live peak, bits
``device_training``     trains on a device and notes its bytes
``output``              tables (CSV, Markdown) and pictures (PNG, SVG)
======================  ================================================================================================
"""
