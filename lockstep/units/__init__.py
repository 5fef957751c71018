"""The systemd units and scripts of the engines and their helpers."""
