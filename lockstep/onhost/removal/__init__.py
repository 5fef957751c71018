"""Takes everything of Lockstep off this host, by the record of what was here before."""
