"""Docker, asked over its socket."""
