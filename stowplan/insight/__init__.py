"""What would it take, and what did it take? Predictions, comparisons, models of other pools, report, demo."""
