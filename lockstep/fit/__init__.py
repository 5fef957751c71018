"""Checks of a recipe: its fit on a host, and its known faults."""
