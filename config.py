"""pyinfra reads this first. The import is all that Lockstep needs of it."""

import lockstep.tasks.start  # noqa: F401
