"""The rows of hostile.py: an actor's deed, the expected outcome, and the way to see it.

A row's function returns a text about the outcome, and fails (AssertionError) on an unexpected one.
"""

from hostile_rows import accounts, switches
from hostile_rows.row import Row, heal_by_deploy

ROWS = (
    *accounts.ROWS,
    *switches.ROWS,
    Row("Z", "after all of them a deploy heals and diff finds nothing", heal_by_deploy),
)
