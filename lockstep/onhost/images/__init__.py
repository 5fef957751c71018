"""Container images on a host."""
