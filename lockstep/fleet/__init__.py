"""All hosts of an inventory, reached by plain ssh."""
