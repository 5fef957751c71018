"""Records of this host: its generations, and the list of our files."""
