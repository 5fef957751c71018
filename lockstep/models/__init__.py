"""What is known of checkpoints: sizes, shapes, licences."""
