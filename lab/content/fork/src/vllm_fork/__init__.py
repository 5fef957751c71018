"""Marks an environment into which the fork was installed."""

BRANCH = "@BRANCH@"
