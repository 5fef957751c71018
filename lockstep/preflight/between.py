"""Preflight: the hosts of one run against each other. Only `exchanged` can be waived."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from lockstep.core.findings import Finding
from lockstep.host.shared_keys import SharedKey

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


def twins(facts: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    """One finding for each host that shares its machine-id or an SSH host key with another one.

    `facts` are what the readers `preflight` answered, by host.
    """
    said = {name: each["identity"] for name, each in facts.items()}
    for name, mine in said.items():
        others = {other: its for other, its in said.items() if other != name}
        same_id = [
            other for other, its in others.items() if mine["machine_id"] == its["machine_id"] != ""
        ]
        shared = {
            other: keys
            for other, its in others.items()
            if (keys := [key for key in mine["host_keys"] if key in its["host_keys"]])
        }
        parts, commands = [], []
        if same_id:
            parts.append(f"its machine-id is that of {', '.join(same_id)} too")
            commands.append(_MACHINE_ID)
        if shared:
            key = next(iter(shared.values()))[0]
            parts.append(f"its SSH host key {key} is that of {', '.join(shared)} too")
            commands.append(_HOST_KEYS)
        if parts:
            remedy = (
                f"On all of them but one run {' and '.join(commands)}, reboot, and compare the "
                f"fingerprint at the next login. {_SOURCE}"
            )
            yield Finding("twin", "error", name, ", and ".join(parts), remedy)


def exchanged(name: str, facts: Mapping[str, Any], every: Collection[str]) -> Iterator[Finding]:
    """A finding where an earlier deploy made this host another one of the inventory.

    A host with a new name is none: its old name is nobody's. `facts` are what the reader
    `preflight` answered, `every` the names of all hosts of the inventory.
    """
    before = facts["named"]
    if before != name and before in every:
        message = f"the host at this address was deployed as {before}, which the inventory has too"
        remedy = (
            f"Compare ssh_hostname of {name} and {before}: they look exchanged. Each would get the "
            'other\'s models and keys. Where that is meant, once: "waive": ("other-host",)'
        )
        yield Finding("other-host", "error", name, message, remedy)


def keys_elsewhere(
    shared: Mapping[str, Sequence[SharedKey]], files: Mapping[str, Mapping[str, Any]]
) -> Iterator[Finding]:
    """One finding for each key that a host lacks and that nobody of the run can give.

    `shared` and `files`, what the readers `files` answered, are by host.
    """
    for host, keys in shared.items():
        for key in keys:
            if key.giver(files) not in files and key.seal(host, files[host]) is None:
                absent = ", ".join(key.unasked(files))
                message = f"the {key.what} is to come from {absent}, which this run does not reach"
                remedy = (
                    f"Deploy to {', '.join(key.hosts)} together, this once. A host that is gone "
                    "for good leaves the inventory."
                )
                yield Finding("key-elsewhere", "error", host, message, remedy)


def keys_apart(
    shared: Mapping[str, Sequence[SharedKey]], files: Mapping[str, Mapping[str, Any]]
) -> Iterator[Finding]:
    """One finding for each key that people's devices know and that hosts have in several forms.

    `shared` and `files` are as above.
    """
    every = {key.path: key for keys in shared.values() for key in keys if key.announcement}
    for key in every.values():
        contents = key.contents(files)
        groups = [
            [host for host, other in contents.items() if other == seal]
            for seal in dict.fromkeys(contents.values())
        ]
        if len(groups) > 1:
            there = "; another one on ".join(", ".join(hosts) for hosts in groups)
            message = f"more than one {key.what} in {key.path}: one on {there}"
            remedy = (
                "Keep the one that your devices trust: move that file away on the other hosts, "
                "and deploy. They take it over then."
            )
            yield Finding("key-differs", "error", groups[0][0], message, remedy)
