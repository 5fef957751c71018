"""Removal of content that nothing needs."""
