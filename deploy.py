"""The whole stack: `lockstep deploy`, or `pyinfra INVENTORY deploy.py` in full."""

from lockstep.tasks.deploy_stages import deploy

deploy()
