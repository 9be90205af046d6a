"""Nothing but an import: what it costs to start."""

import numpy as np

print(np.zeros(1).sum())
