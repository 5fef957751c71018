"""Programs of others that ask the gateway: their configurations."""
