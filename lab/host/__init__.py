"""One stand-in Spark: its guest, disk, memory, network and cable."""
