"""Recipes written for a repository of weights, from the catalogue's knowledge of its family."""
