"""State, errors and cache of the lab, used by all its parts."""
