"""Parts of a lab for a machine with a GPU and no network, and the whole run there."""
