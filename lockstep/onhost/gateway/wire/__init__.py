"""A request as the gateway reads it, and the words of its own answers."""
