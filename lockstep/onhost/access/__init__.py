"""Keys that are made once."""
