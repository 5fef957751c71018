"""The image registry and its images."""
