"""Configurations and request shapes of other programs that ask the gateway."""
