"""Modules that the programs on a host share."""
