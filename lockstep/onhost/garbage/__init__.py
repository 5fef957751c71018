"""What nothing needs any more."""
