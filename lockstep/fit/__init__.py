"""Does a recipe fit a host, and what is known to be wrong with it."""
