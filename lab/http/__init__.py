"""Web servers that log what they send and can be made to fail."""
