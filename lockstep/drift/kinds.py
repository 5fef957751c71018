"""The kinds of facts in a snapshot, each with its severity and its remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from lockstep.drift import remedies

Severity = Literal["error", "warning", "note"]
How = Literal["deploy", "by hand", "reboot"]
Command = Callable[[str, str | None, str | None], tuple[str, ...]]


@dataclass(frozen=True)
class Kind:
    """One kind of fact.

    Attributes:
        severity: How much it matters: an "error" breaks or endangers serving, a "warning" makes
            hosts unequal in what they do, a "note" in what they hold.
        how: Who puts right what inventory or record ask for.
        command: (item, expected, found) → what to type on the host; () where no one line does it.
        peers: Whether hosts are compared with each other, where the inventory asks for nothing.
        closed: Whether a fact that nothing asks for is drift by itself.
        part: Whether it is a part of something else, of which another kind says that it is missing.
        sealed: Whether values are keyed hashes, which say nothing to a reader.
    """

    severity: Severity = "warning"
    how: How = "by hand"
    command: Command = remedies.nothing
    peers: bool = True
    closed: bool = False
    part: bool = False
    sealed: bool = False


KINDS: dict[str, Kind] = {
    # What the deploy writes and keeps.
    "file": Kind("error", "deploy", peers=False, sealed=True),
    "file mode": Kind("error", "deploy", peers=False),
    "folder": Kind("error", "deploy", peers=False),
    "leftover": Kind("warning", "deploy", peers=False, closed=True),
    "unit": Kind("error", "by hand", remedies.unmask),
    "unit path": Kind("error", "by hand", remedies.remove_found, peers=False),
    "boot": Kind("error", "deploy", peers=False),
    "running": Kind("error", "deploy", peers=False),
    "system service": Kind("error", "by hand", remedies.start),
    "generation": Kind("error", "deploy", peers=False),
    "unread unit": Kind("warning", "by hand", remedies.reload, peers=False, closed=True),
    "drop-in": Kind("error", "by hand", remedies.remove_drop_in, peers=False, closed=True),
    "older process": Kind("warning", "by hand", remedies.restart, peers=False, closed=True),
    "failed unit": Kind("error", "by hand", remedies.look, peers=False, closed=True),
    "secret": Kind("error", "deploy", peers=False),
    "secret entry": Kind("error", "by hand", remedies.remake_secret, peers=False),
    "cluster key": Kind("error", "deploy", peers=False, sealed=True),
    "hub token mode": Kind("error", "by hand", remedies.token_mode, peers=False),
    "foreign file": Kind("warning", "by hand", remedies.remove, peers=False, closed=True),
    "script": Kind("note", sealed=True),
    "hub token": Kind("note", sealed=True),
    # Engines and what they read.
    "engine": Kind("error", "deploy"),
    "checkout": Kind("error", "by hand", remedies.checkout, peers=False),
    "engine package": Kind("error", "deploy", peers=False, closed=True),
    "changed package file": Kind("error", "by hand", remedies.rebuild, peers=False, closed=True),
    "tools": Kind("warning"),
    "tools package": Kind("warning", "deploy"),
    "link": Kind("warning", "deploy", peers=False),
    "image": Kind("error", "deploy", peers=False),
    "image answer": Kind("error", "deploy", peers=False),
    "other image": Kind("note", "by hand", remedies.image),
    "restart policy": Kind("error", "by hand", remedies.no_restart, peers=False),
    "other container": Kind("warning", "by hand", remedies.container),
    "volume": Kind("note"),
    "weights": Kind("error", "deploy", peers=False),
    "weights owner": Kind("error", "by hand", remedies.weights_owner, peers=False, closed=True),
    "weights content": Kind("error", "by hand", remedies.weights, peers=False, closed=True),
    "other weights": Kind("note"),
    # The system below.
    "kernel": Kind("warning", "reboot", remedies.kernel),
    "firmware": Kind("warning"),
    "driver": Kind("error", "reboot"),
    "DGX OS": Kind("warning"),
    "CUDA": Kind("error", sealed=True),
    "CDI": Kind("warning", "by hand", remedies.cdi, sealed=True),
    "CDI driver": Kind("error", "by hand", remedies.cdi, peers=False),
    "docker": Kind("warning", "by hand", remedies.restart_docker),
    "apt package": Kind("warning", "deploy", remedies.apt),
    "apt state": Kind("error", "by hand", remedies.dpkg, peers=False, closed=True),
    "apt hold": Kind("warning", "by hand", remedies.hold),
    "alternative": Kind("note", "by hand", remedies.alternative),
    "sysctl": Kind("warning", "deploy", remedies.sysctl),
    "memory": Kind("warning", "by hand", remedies.memory),
    "mount": Kind("warning"),
    "setting": Kind("warning", "by hand", remedies.setting, sealed=True),
    "setting mode": Kind("warning", "by hand", remedies.mode, part=True),
    "service": Kind("warning", "by hand", remedies.service),
    "account": Kind("note", "deploy", remedies.account),
    "account home": Kind("note", "by hand", remedies.home, part=True),
    "account shell": Kind("warning", "by hand", remedies.shell, part=True),
    "group": Kind("note", "deploy", remedies.group),
    "member": Kind("warning", "deploy", remedies.member),
    "right": Kind("error", "deploy", remedies.member, peers=False, closed=True),
    "password": Kind("warning", "by hand", remedies.password, part=True),
    "login key": Kind("warning", "by hand", remedies.login_key),
    "socket": Kind("warning", "by hand", remedies.socket),
    "exposed port": Kind("error", "by hand", remedies.port, peers=False, closed=True),
    "network": Kind("warning", "by hand", remedies.network),
    "firewall": Kind("warning", sealed=True),
    "clock": Kind("warning", "by hand", remedies.clock),
    "clock offset": Kind("error", "by hand", remedies.clock, peers=False),
}
