"""Removal of everything of Lockstep from this host, by the baseline from before."""
