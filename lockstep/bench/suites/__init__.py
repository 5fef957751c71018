"""Quality suites of the bench."""
