"""Several Sparks that serve one model together."""
