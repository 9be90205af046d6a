"""A GPT's blocks split over ranks of MPI, for `experiments.papers.korthikanti`: a rank; what recomputation costs."""
