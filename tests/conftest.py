"""For all tests: Python looks for garbage less often, and an example may take any time."""

from __future__ import annotations

import gc

from hypothesis import settings

# What thousands of tests and their imports leave in memory stays until the end. With Python's own
# thresholds each worker spends a fifth of its collection looking for garbage among it.
gc.set_threshold(100_000, 20, 100)

# A busy machine is no fault of an example.
settings.register_profile("lockstep", deadline=None)
settings.load_profile("lockstep")
