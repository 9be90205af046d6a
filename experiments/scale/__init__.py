"""What a cluster would do, past the machines here: ``python -m experiments.scale``."""
