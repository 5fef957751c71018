"""What a Spark tells Prometheus of itself."""
