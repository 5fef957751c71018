"""Parsing of requests to the gateway, and its own answers."""
