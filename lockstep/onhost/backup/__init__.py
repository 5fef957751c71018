"""Backups of what a Spark alone has."""
