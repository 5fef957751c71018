"""The venv engine: built, checked."""
