"""Facts about checkpoints: sizes, shapes, licences."""
