"""pyinfra reads this first. The import is all that Lockstep needs of it."""

import lockstep.tasks.prepare_inventory_reading  # noqa: F401
