"""pyinfra reads this first. The import is all that Lockstep needs of it."""

import lockstep.tasks.inventory_python_guard  # noqa: F401
