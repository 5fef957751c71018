"""Recipes: one model, one engine, one set of flags."""
