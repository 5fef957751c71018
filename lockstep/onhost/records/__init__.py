"""What this host was brought to, and what of it is ours."""
