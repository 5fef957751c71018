"""The host's own network and packages: changed without losing the host."""
