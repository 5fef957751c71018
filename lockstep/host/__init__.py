"""What one host is to be: files, engines, images, weights."""
