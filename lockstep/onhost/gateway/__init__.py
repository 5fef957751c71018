"""The gateway: every model of a Spark under one address."""
