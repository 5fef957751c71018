"""A running engine: requests to it, its readiness, its measurements."""
