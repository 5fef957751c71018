"""The rows of hostile.py: what somebody does, what must come of it, and how it is seen.

A row's function says what happened, and fails (AssertionError) where that is not what is expected.
"""

from hostile_rows import accounts, deploys, gateway, switches
from hostile_rows.row import Row, healed

ROWS = (
    *accounts.ROWS,
    *switches.ROWS,
    *deploys.ROWS,
    *gateway.ROWS,
    Row("Z", "after all of them a deploy heals and diff finds nothing", healed),
)
