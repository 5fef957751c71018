"""Recipes written for a repository of weights, by what the catalogue knows of its family."""
