"""What only `inventories/spark.py` has."""

# Every other inventory has a lock of its own, INVENTORY.lock.yaml.
lock = "lockstep.lock.yaml"
