"""Networks that the experiments train."""
