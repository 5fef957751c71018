"""The git server and its repositories."""
