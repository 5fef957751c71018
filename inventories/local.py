"""The present machine, as its own host on the Spark: `pyinfra inventories/local.py deploy.py`."""

import getpass

from lockstep.deploy.checked import checked

local = checked(__file__, [("@local", {"operators": (getpass.getuser(),)})])
