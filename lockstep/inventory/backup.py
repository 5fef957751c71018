"""Keys of inventory data for backups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from lockstep.inventory import values
from lockstep.inventory.secret import Secret
from lockstep.onhost.core.schema import between, pattern_rule

#: The destination that is the next Spark of the inventory.
PEER = "peer"
#: The next Spark, a folder on the host, or one that root of the host reaches by sftp.
Destination = Annotated[
    str,
    pattern_rule(
        rf"{PEER}|(?:sftp:[a-z_][a-z0-9_-]*@[A-Za-z0-9][A-Za-z0-9.-]*:)?{values.PATH}",
        "is no place for a backup",
        '"peer", "/FOLDER" or "sftp:USER@HOST:/FOLDER", of letters, digits and \'_.@+-\'',
        remedy='The next Spark of the inventory is "peer" (it was "twin").',
    ),
]
_Number = Annotated[int, between(0, 1000, "is no number of backups")]


@dataclass(frozen=True)
class Backup:
    """The backups of a Spark's data (docs/backup.md).

    Attributes:
        enabled: Whether the Spark has any. Copies of Open WebUI's data from before updates are then
            in the backup too.
        to: Second place of each night's backup: the next Spark of the inventory ("peer"), or below
            a folder named after the host.
        port: Port at `fabric_address` for the backups of another Spark.
        keep_daily: Nights whose backup is kept.
        keep_weekly: Weeks whose backup is kept.
        keep_monthly: Months whose backup is kept.
        hour: Hour at which it begins, in the host's time.
        password: Encrypts it. None: made on the host.
    """

    enabled: bool = False
    to: tuple[Destination, ...] = ()
    port: values.Port = 7076
    keep_daily: Annotated[int, between(1, 1000, "is no number of backups")] = 7
    keep_weekly: _Number = 4
    keep_monthly: _Number = 6
    hour: Annotated[int, between(0, 23, "is no hour")] = 3
    password: Secret | None = None

    @property
    def has_peer(self) -> bool:
        """True if another Spark is to keep the backups too."""
        return self.enabled and PEER in self.to
