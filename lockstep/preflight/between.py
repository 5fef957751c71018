"""Preflight: the hosts of one run against each other. Only `exchanged` can be waived."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from lockstep.core.findings import Finding
from lockstep.host.keys_shared_by_hosts import SharedKey
from lockstep.resources.files import whole_key_hash

# NVIDIA's bulletin 5835 names the flaw; MSI EdgeXpert and ASUS GX10 were seen with it
# (forums.developer.nvidia.com/t/374930, 2026-07).
_SOURCE = (
    "Some factory images were cloned with both (CVE-2026-24218, nvidia.custhelp.com a_id 5835). "
    "If it is one host under two names, keep one of them."
)
_MACHINE_ID = (
    "`sudo rm -f /etc/machine-id /var/lib/dbus/machine-id && sudo systemd-machine-id-setup`"
)
_HOST_KEYS = "`sudo rm /etc/ssh/ssh_host_*_key* && sudo ssh-keygen -A`"


def clones(facts: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield a finding for each host that shares its machine-id or an SSH host key with another.

    `facts` has the answers of the readers `preflight`, by host.
    """
    identities = {name: answer["identity"] for name, answer in facts.items()}
    for name, identity in identities.items():
        peer_identities = {
            peer_name: its for peer_name, its in identities.items() if peer_name != name
        }
        same_id = [
            peer_name
            for peer_name, its in peer_identities.items()
            if identity["machine_id"] == its["machine_id"] != ""
        ]
        shared_values = {
            peer_name: keys
            for peer_name, its in peer_identities.items()
            if (keys := [key for key in identity["host_keys"] if key in its["host_keys"]])
        }
        parts, commands = [], []
        if same_id:
            parts.append(f"its machine-id is that of {', '.join(same_id)} too")
            commands.append(_MACHINE_ID)
        if shared_values:
            key = next(iter(shared_values.values()))[0]
            parts.append(f"its SSH host key {key} is that of {', '.join(shared_values)} too")
            commands.append(_HOST_KEYS)
        if parts:
            remedy = (
                f"On all of them but one run {' and '.join(commands)}, reboot, and compare the "
                f"fingerprint at the next login. {_SOURCE}"
            )
            yield Finding("clone", "error", name, ", and ".join(parts), remedy)


def exchanged_hosts(
    name: str, facts: Mapping[str, Any], every: Collection[str]
) -> Iterator[Finding]:
    """Yield a finding where an earlier deploy made this host another one of the inventory.

    A renamed host is no finding: no host has its old name. `facts` is the answer of the reader
    `preflight`, `every` the names of all hosts of the inventory.
    """
    earlier_name = facts["named"]
    if earlier_name != name and earlier_name in every:
        message = (
            f"the host at this address was deployed as {earlier_name}, which the inventory has too"
        )
        remedy = (
            f"Compare ssh_hostname of {name} and {earlier_name}: they look exchanged. Each would "
            "get the "
            'other\'s models and keys. Where that is meant, once: "waive": ("other-host",)'
        )
        yield Finding("other-host", "error", name, message, remedy)


def keys_elsewhere(
    keys_by_host: Mapping[str, Sequence[SharedKey]], files: Mapping[str, Mapping[str, Any]]
) -> Iterator[Finding]:
    """Yield a finding for each key that a host lacks and that no host of the run can give.

    `keys_by_host` has each host's keys, `files` the answers of the readers `files` by host.
    """
    for host, keys in keys_by_host.items():
        for key in keys:
            if (
                key.giving_host(files) not in files
                and whole_key_hash(key, host, files[host]) is None
            ):
                absent = ", ".join(key.silent_hosts(files))
                message = (
                    f"the {key.description} is to come from {absent}, which this run does not reach"
                )
                remedy = (
                    f"Deploy to {', '.join(key.hosts)} together, this once. A host that is gone "
                    "for good leaves the inventory."
                )
                yield Finding("key-elsewhere", "error", host, message, remedy)


def keys_apart(
    keys_by_host: Mapping[str, Sequence[SharedKey]], files: Mapping[str, Mapping[str, Any]]
) -> Iterator[Finding]:
    """Yield a finding for each key known to people's devices that differs between hosts.

    `files` has the answers of the readers `files`, by host.
    """
    every = {key.path: key for keys in keys_by_host.values() for key in keys if key.announcement}
    for key in every.values():
        contents = key.key_hash_by_host(files)
        groups = [
            [host for host, other_seal in contents.items() if other_seal == seal]
            for seal in dict.fromkeys(contents.values())
        ]
        if len(groups) > 1:
            places = "; another one on ".join(", ".join(hosts) for hosts in groups)
            message = f"more than one {key.description} in {key.path}: one on {places}"
            remedy = (
                "Keep the one that your devices trust: move that file away on the other hosts, "
                "and deploy. They take it over then."
            )
            yield Finding("key-differs", "error", groups[0][0], message, remedy)
