"""Recipes: how one model is served by one engine."""
