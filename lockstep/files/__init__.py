"""Files that the deploy writes: rendered, quoted, compared."""
