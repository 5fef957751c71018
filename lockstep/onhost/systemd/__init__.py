"""Client of systemd's units, and long work as a unit."""
