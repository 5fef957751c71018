"""Programs that run inside an engine's own environment and print what it knows."""
