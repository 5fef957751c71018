"""The package indexes and their wheels."""
