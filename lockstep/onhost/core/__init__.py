"""Shared modules of the programs on a host."""
