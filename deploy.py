"""The whole stack: `lockstep deploy`, or `pyinfra INVENTORY deploy.py` in full."""

from tasks.stack import deploy

deploy()
