"""The whole stack: `lockstep deploy`, or `pyinfra INVENTORY deploy.py` in full."""

from lockstep.tasks.stack import deploy

deploy()
