"""A Spark's metrics for Prometheus."""
