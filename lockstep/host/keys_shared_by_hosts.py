"""Keys that several hosts of an inventory share: made once, carried to the hosts that lack them.

A key is a secret, or the public half of a pair whose other half stays on the host that made it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lockstep.files.managed_file import (
    AGENT_UNIT,
    GATEWAY_UNIT,
    PEER_AUTHORITY,
    command,
    peer_identity,
)
from lockstep.inventory.host import HostPlan
from lockstep.onhost.access import peer_tls
from lockstep.units import backup_peer, tls_unit

_NEW_AUTHORITY = (
    "No host had an authority of certificates, so a new one was made. Tell every phone, laptop and "
    "program that asks the gateways by TLS to trust it, also those that trusted an earlier one. "
    f"Its certificate is {tls_unit.ROOT} on each host, and https://HOST:{{port}}/root.crt "
    "(`lockstep help tls`)."
)


@dataclass(frozen=True)
class SharedKey:
    """A key that several hosts share.

    Attributes:
        description: "authority of Sparks".
        path: Path of the key on each host.
        hosts: Names in the inventory of the hosts that have it. The first one makes a new key.
        make: Command that makes the key, once.
        take: Command that writes the key from its standard input instead.
        units: Units that read the key when they start.
        mode: Permissions there, octal; a public half is no secret.
        private: Path of the other half on the host that makes it, for root alone; "": no pair.
        certificates: What each host makes for itself with the key, for root alone: path → name in
            the certificate.
        public: Path of a part that everybody may read and that comes with the key; "": none.
        own: Whether the key belongs to the first host, so that no other one can give it.
        announcement: Message for people about a new key; "": no device of theirs knows it. A key
            with an announcement is never replaced.
    """

    description: str
    path: str
    hosts: tuple[str, ...]
    make: tuple[str, ...]
    take: tuple[str, ...]
    units: tuple[str, ...]
    mode: str = "0600"
    private: str = ""
    certificates: Mapping[str, str] = field(default_factory=dict)
    public: str = ""
    own: bool = False
    announcement: str = ""

    def file_modes(self, host: str) -> dict[str, str]:
        """Return path → mode and owner of the key's files on a host."""
        private = self.private if host == self.hosts[0] else ""
        modes = {self.path: self.mode, self.public: "0644"}
        modes |= dict.fromkeys((*self.certificates, private), "0600")
        return {path: f"{mode} root:root" for path, mode in modes.items() if path}

    def key_hash(self, files: Mapping[str, Any] | None) -> str | None:
        """Return a keyed hash of the key on a host, whoever may read it; None for none."""
        have = files[self.path] if files else None
        return have["seal"] if have and "seal" in have else None

    def key_hash_by_host(self, files: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
        """Return host → that hash, for the hosts that have the key, in the inventory's order.

        `files` has the answers of the readers `files`, by host.
        """
        texts_by_host = {host: self.key_hash(files.get(host)) for host in self.hosts}
        return {host: seal for host, seal in texts_by_host.items() if seal is not None}

    def giving_host(self, files: Mapping[str, Mapping[str, Any]]) -> str:
        """Return the host that gives the key to the others, and makes it if it has none itself.

        Return "" where no host of `files` has the key and a silent one may have it.
        """
        if self.own:
            return self.hosts[0]
        having = [
            *self.key_hash_by_host(files),
            *(self.hosts if files.keys() >= {*self.hosts} else ()),
        ]
        return having[0] if having else ""

    def silent_hosts(self, files: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Return the hosts that may have the key and did not answer."""
        return [host for host in self.hosts[: 1 if self.own else None] if host not in files]


def shared_keys(plan: HostPlan) -> Iterator[SharedKey]:
    """Yield the keys that a host shares with others."""
    units = {peer_tls.AGENT: AGENT_UNIT} if plan.groups else {}
    units |= {peer_tls.GATEWAY: GATEWAY_UNIT} if plan.peers else {}
    if units:
        words = (PEER_AUTHORITY, plan.name, *units)
        yield SharedKey(
            "authority of Sparks",
            PEER_AUTHORITY,
            plan.peer_hosts,
            command("peer-certificates", *words),
            command("peer-certificates", "--take", *words),
            tuple(units.values()),
            certificates={
                peer_identity(role, plan.name): peer_tls.certificate_name(role, plan.name)
                for role in units
            },
        )
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
    # A host and the host that keeps its backups know each other by these public halves.
    backups = plan.backups
    pairs = [(plan.name, backups.peer.name)] if backups.peer else []
    pairs += [(backups.of.name, plan.name)] if backups.of else []
    for of, peer in pairs:
        private, public = backup_peer.PRIVATE, backup_peer.public_key_path(of)
        make = command("backup-key", "make", private, public)
        yield _public_key(f"key of {of}'s backups", public, (of, peer), make, private)
        host_key = backup_peer.host_key_path(peer)
        make = command("backup-key", "host-key", backup_peer.ssh_alias(peer), host_key)
        yield _public_key(f"host key of {peer} for backups", host_key, (peer, of), make)


def _public_key(
    description: str, path: str, hosts: tuple[str, ...], make: tuple[str, ...], private: str = ""
) -> SharedKey:
    take = command("backup-key", "take", path)
    return SharedKey(
        description, path, hosts, make, take, (), mode="0644", private=private, own=True
    )
