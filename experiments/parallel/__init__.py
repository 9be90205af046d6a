"""What a rank of a split network keeps alive: ``python -m experiments.parallel``; `rank` is what each rank runs."""
