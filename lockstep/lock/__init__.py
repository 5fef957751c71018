"""The lock file: what every moving name stands for."""
