"""Changes of the host's network and packages that never lock people out."""
