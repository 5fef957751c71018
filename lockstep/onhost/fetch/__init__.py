"""Content by its hash: from a peer, else from its origin."""
