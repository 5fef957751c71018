"""Commands for the gateway: keys of persons, and configurations of clients."""
