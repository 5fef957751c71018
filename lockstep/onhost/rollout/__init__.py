"""A deploy that changes a hot model: its activation, or the return to the old state."""
