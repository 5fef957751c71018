"""Inventory data: read, typed and checked, without contacting a host."""
