"""Docker, through its socket."""
