"""Open WebUI: its data before, during and after an update."""
