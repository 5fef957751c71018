"""Removal of unneeded content."""
