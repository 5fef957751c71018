"""Measurement of a served model: a client, suites, and self-checks before any score."""
