"""Commands for what the Sparks tell of themselves."""
