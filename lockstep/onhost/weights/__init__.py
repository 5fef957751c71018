"""Model weights on a host."""
