"""What the programs on a host share."""
