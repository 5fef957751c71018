"""Keys that several hosts of an inventory have alike: made once, carried to who lacks them.

A key is secret, or the public half of a pair whose other half stays on the host that made it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lockstep.files.managed_file import AGENT_UNIT, GATEWAY_UNIT, PEER_KEY, command
from lockstep.inventory.host import HostPlan
from lockstep.units import backup_twin, tls_unit
from lockstep.units.agent_unit import key_path

_NEW_AUTHORITY = (
    "No host had an authority of certificates, so a new one was made. Tell every phone, laptop and "
    "program that asks the gateways by TLS to trust it, also those that trusted an earlier one. "
    f"Its certificate is {tls_unit.ROOT} on each host, and https://HOST:{{port}}/root.crt "
    "(`lockstep help tls`)."
)


@dataclass(frozen=True)
class SharedKey:
    """One such key.

    Attributes:
        what: "key of cluster pair".
        path: Where each host has it.
        hosts: Who has it, as the inventory names them; the first one makes it where nobody has it.
        make: What makes it, once.
        take: What writes what comes on standard input instead.
        units: Those that read it when they start.
        mode: Permissions there, octal; a public half is no secret.
        private: Where the host that makes it keeps the other half, for root alone; "": it is one.
        public: What everybody may read of it, which comes with it; "": nothing.
        own: Whether it is the first host's own, so that no other one can give it.
        announcement: What people must be told of a new one; "": no device of theirs knows it. With
            it, a key that is there is never replaced.
    """

    what: str
    path: str
    hosts: tuple[str, ...]
    make: tuple[str, ...]
    take: tuple[str, ...]
    units: tuple[str, ...]
    mode: str = "0600"
    private: str = ""
    public: str = ""
    own: bool = False
    announcement: str = ""

    def modes(self, host: str) -> dict[str, str]:
        """Path → mode of what a host has of it."""
        own = {self.private: "0600"} if self.private and host == self.hosts[0] else {}
        public = {self.public: "0644"} if self.public else {}
        return {self.path: self.mode, **own, **public}

    def seal(self, host: str, files: Mapping[str, Any] | None) -> str | None:
        """A keyed hash of the key on a host; None where not all of it is there for its owner.

        `files` is what the reader `files` answered there; None: nothing.
        """
        for path, mode in self.modes(host).items():
            have = files[path] if files else None
            if have is None or (have["mode"], have["owner"], have["group"]) != (
                *(mode, "root", "root"),
            ):
                return None
        return str(files[self.path]["seal"]) if files else None

    def given(self, host: str, files: Mapping[str, Any] | None) -> str | None:
        """A keyed hash of what a host that gives it will give; None where it makes a new one."""
        return self.seal(host, files) if self.private else self.content(files)

    def content(self, files: Mapping[str, Any] | None) -> str | None:
        """A keyed hash of what a host has there, whoever may read it; None where it has nothing."""
        have = files[self.path] if files else None
        return have["seal"] if have and "seal" in have else None

    def contents(self, files: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
        """Host → that hash, of the hosts that have it, in the inventory's order.

        `files` is what the readers `files` answered, by host.
        """
        found = {host: self.content(files.get(host)) for host in self.hosts}
        return {host: seal for host, seal in found.items() if seal is not None}

    def giver(self, files: Mapping[str, Mapping[str, Any]]) -> str:
        """The host that gives it to those that lack it, and makes it where it lacks it itself.

        "" for nobody: no host of `files` has it, and one that did not answer may have it.
        """
        if self.own:
            return self.hosts[0]
        having = [*self.contents(files), *(self.hosts if files.keys() >= {*self.hosts} else ())]
        return having[0] if having else ""

    def unasked(self, files: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """The hosts that did not answer and may have it."""
        return [host for host in self.hosts[: 1 if self.own else None] if host not in files]


def shared_keys(plan: HostPlan) -> Iterator[SharedKey]:
    """The keys that a host has in common with others."""
    for group in plan.groups:
        members = tuple(member.name for member in group.members)
        yield _secret(f"key of cluster {group.name}", key_path(group.name), members, AGENT_UNIT)
    if plan.gateways:
        yield _secret("key of gateways", PEER_KEY, plan.gateways, GATEWAY_UNIT)
    if authority := plan.authority:
        path = tls_unit.authority_path(authority.id)
        yield SharedKey(
            "authority of certificates",
            path,
            authority.hosts,
            command("make-authority", path, *authority.names),
            command("make-authority", "--take", path),
            (tls_unit.UNIT,),
            public=tls_unit.ROOT,
            announcement=_NEW_AUTHORITY.format(port=plan.settings.gateway.tls_port),
        )
    # The public halves by which a host and the one that keeps its backups know each other.
    backups = plan.backups
    pairs = [(plan.name, backups.twin.name)] if backups.twin else []
    pairs += [(backups.of.name, plan.name)] if backups.of else []
    for of, twin in pairs:
        private, public = backup_twin.PRIVATE, backup_twin.public_path(of)
        make = command("backup-key", "make", private, public)
        yield _public(f"key of {of}'s backups", public, (of, twin), make, private)
        known = backup_twin.door_path(twin)
        make = command("backup-key", "door", backup_twin.alias(twin), known)
        yield _public(f"host key of {twin} for backups", known, (twin, of), make)


def _secret(what: str, path: str, hosts: tuple[str, ...], unit: str) -> SharedKey:
    words = (command("make-secrets", path), command("make-secrets", "--take", path))
    return SharedKey(what, path, hosts, *words, (unit,))


def _public(
    what: str, path: str, hosts: tuple[str, ...], make: tuple[str, ...], private: str = ""
) -> SharedKey:
    take = command("backup-key", "take", path)
    return SharedKey(what, path, hosts, make, take, (), mode="0644", private=private, own=True)
