"""Keys, made once."""
