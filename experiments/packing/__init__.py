"""The packing experiments: generated problems, inference profiles, and the benchmark of all solvers."""
