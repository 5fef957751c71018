"""The venv engine: its build and its check."""
