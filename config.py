"""pyinfra reads this first. The import is all that Lockstep needs of it."""

import tasks.start  # noqa: F401
