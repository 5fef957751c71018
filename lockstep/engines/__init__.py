"""What is known of the engines."""
