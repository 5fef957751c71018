"""What is in the way of a deploy and is not Lockstep's: as `adopt` would name it → whose it is.

Argument: as for `ours.intruders`.
"""

from __future__ import annotations

from typing import Any

from lockstep.onhost.records import ours


def main(asked: dict[str, Any]) -> dict[str, str]:
    return ours.intruders(asked)
