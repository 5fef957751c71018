"""The basis of a host, before any engine: accounts, tools, firewall, fabric."""
