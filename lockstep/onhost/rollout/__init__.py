"""A deploy that changes a hot model: in force, or back."""
