"""Keys, and the proxy that asks for them."""
