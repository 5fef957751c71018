"""Stand-in of an inference engine: the same command lines, life cycle and HTTP API, no model.

Runs inside the lab's container images on the standard library alone.
"""
