"""Data of `inventories/spark.py` alone."""

# Every other inventory has a lock of its own, INVENTORY.lock.yaml.
lock = "lockstep.lock.yaml"
