"""The wanted state of one host: files, engines, images, weights."""
