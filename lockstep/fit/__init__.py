"""Whether a recipe fits a host, and known faults of recipes."""
