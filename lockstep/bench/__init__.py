"""Measuring a served model: a client, suites, and a ruler that checks itself before it scores."""
