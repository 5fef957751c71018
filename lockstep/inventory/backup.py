"""Keys of inventory data for backups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from lockstep.inventory import values
from lockstep.inventory.secret import Secret
from lockstep.onhost.core.schema import between, like

#: The destination that is the next Spark of the inventory.
TWIN = "twin"
#: That one, a folder on the host, or one that root of the host reaches by sftp.
Destination = Annotated[
    str,
    like(
        rf"{TWIN}|(?:sftp:[a-z_][a-z0-9_-]*@[A-Za-z0-9][A-Za-z0-9.-]*:)?{values.PATH}",
        "is no place for a backup",
        '"twin", "/FOLDER" or "sftp:USER@HOST:/FOLDER", of letters, digits and \'_.@+-\'',
    ),
]
_Number = Annotated[int, between(0, 1000, "is no number of backups")]


@dataclass(frozen=True)
class Backup:
    """What a Spark keeps of its data (docs/backup.md).

    Attributes:
        enabled: Whether it keeps any. Copies of Open WebUI's data from before updates are then in
            the backup too.
        to: Where each night's backup goes as well: the next Spark of the inventory ("twin"), or
            below a folder named after the host.
        port: Port at `fabric_address` for the backups of another Spark.
        keep_daily: Nights that have one.
        keep_weekly: Weeks that have one.
        keep_monthly: Months that have one.
        hour: When it begins, in the host's time.
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
    def has_twin(self) -> bool:
        """Whether another Spark is to keep it too."""
        return self.enabled and TWIN in self.to
