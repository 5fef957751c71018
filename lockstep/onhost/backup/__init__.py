"""Backups of the data that exists only on one Spark."""
