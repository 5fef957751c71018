"""Stand-in of Open WebUI: accounts, settings that persist, and the models of its engines."""
