"""The pools, one file for each runtime."""
