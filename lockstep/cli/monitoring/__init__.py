"""Commands for the Sparks' reports about themselves: alerts and the black box."""
