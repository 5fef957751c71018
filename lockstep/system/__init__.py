"""What a host is given before any engine: accounts, tools, firewall, fabric."""
