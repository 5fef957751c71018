"""A deploy that changes a hot model: puts it into force, or restores the old state."""
