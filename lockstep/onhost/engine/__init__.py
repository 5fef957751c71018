"""A running engine: asked, waited for, measured."""
