"""Solvers: from a step graph and a budget to a schedule. One idea a module; each registers itself by its name."""
