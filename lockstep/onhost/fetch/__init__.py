"""Content by its hash: from another Spark, else from its origin."""
