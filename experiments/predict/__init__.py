"""Predicted peaks of functions of arrays against measured ones: ``python -m experiments.predict``."""
