"""The lock file: exact versions for every moving name."""
