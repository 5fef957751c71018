"""Commands about the gateway: keys of persons, and configurations of clients."""
