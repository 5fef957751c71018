"""For all tests: Python looks for garbage less often."""

from __future__ import annotations

import gc

# What thousands of tests and their imports leave in memory stays until the end. With Python's own
# thresholds each worker spends a fifth of its collection looking for garbage among it.
gc.set_threshold(100_000, 20, 100)
