"""Keys of inventory data for backups, and which Spark keeps whose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from lockstep.core.errors import InventoryError
from lockstep.inventory import values
from lockstep.inventory.monitoring import after, is_address
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


@dataclass(frozen=True)
class Partner:
    """Another Spark: its name, its `fabric_address`, its `backup.port`."""

    name: str
    address: str
    port: int


@dataclass(frozen=True)
class Partners:
    """With whom a host has to do for backups.

    Attributes:
        twin: Who keeps this host's; None: no other Spark does.
        of: Whose this host keeps; None: nobody's.
    """

    twin: Partner | None = None
    of: Partner | None = None


class Saving(NamedTuple):
    """One host as `partners` sees it: its name, its `fabric_address`, its data."""

    name: str
    address: str | None
    data: Backup


def partners(hosts: Sequence[Saving], where: str) -> dict[str, Partners]:
    """Host → its partners: the backups of each go to the next one, those of the last to the first.

    Args:
        hosts: All hosts of one inventory, in its order.
        where: The inventory, for errors.

    Raises:
        InventoryError: a host has no twin, or no address on the link to it.
    """
    asking = [host for host in hosts if host.data.enabled and TWIN in host.data.to]
    linked = {
        host.name: Partner(host.name, str(host.address), host.data.port)
        for host in hosts
        if is_address(host.address)
    }
    for host in asking:
        if host.name not in linked:
            raise InventoryError(
                f'backup.to of {host.name} is "{TWIN}", and fabric_address is no IP address',
                where=where,
                found=f"fabric_address {host.address!r}",
                remedy="Give both Sparks their own address on the link between them.",
            )
    to = {host.name: after(host.name, list(linked), linked) for host in asking}
    for name, twin in to.items():
        if twin is None:
            raise InventoryError(
                f'backup.to of {name} is "{TWIN}", and {name} has no twin',
                where=where,
                found="no other host with a fabric_address",
                remedy="Add another Spark with its address on the link, or name a folder or an "
                "sftp server.",
            )
    of = {twin: name for name, twin in to.items() if twin}
    return {
        host.name: Partners(
            twin=linked.get(to.get(host.name) or ""), of=linked.get(of.get(host.name, ""))
        )
        for host in hosts
    }
