"""The fast link: tried, logged in to, and only then kept."""

from __future__ import annotations

from typing import Any

import pytest
from a_host import Host, deploying
from a_spark import spark

from lockstep.files.managed_file import ManagedFile
from lockstep.onhost.facts.reader_helpers import seal
from lockstep.resources.files import KEY
from lockstep.system.netplan import NETPLAN
from lockstep.tasks.operations import fabric

TEXT = "network: {}\n"
FILE = ManagedFile(NETPLAN, TEXT, mode="0600")
HAVE = {"kind": "file", "mode": "0600", "owner": "root", "group": "root", "text": None}
PROGRAM = "/usr/bin/python3 /usr/local/lib/lockstep fabric"
PORT = "enp1s0f0np0"
SETTINGS = spark(
    fabric={"interfaces": {PORT: "10.77.0.11/24"}, "netplan": True},
    fabric_address="10.77.0.11",
).settings
GOOD = {f"{PORT} MTU": "9000", f"{PORT} addresses": "10.77.0.11/24 fe80::1/64"}


def linked_host(link: dict[str, str], file: dict[str, Any] | None = HAVE) -> Host:
    """A host with a link, and a netplan file with the wanted text."""
    sealed_file = file and {**file, "seal": seal(KEY, TEXT.encode())}
    return Host({"network.fabric": {"fast link": link}, "files": {NETPLAN: sealed_file}})


def commands(host: Host) -> list[Any]:
    with deploying(host):
        return list(fabric.apply_addresses._inner(file=FILE, settings=SETTINGS))


def test_a_link_that_is_as_it_should_be_is_left_alone() -> None:
    # Without a cable no address is in force, and none is missed.
    for link in (GOOD, {}):
        host = linked_host(link)
        assert commands(host) == []
        assert host.noop_messages == ["the fast link has its addresses"]


def test_a_mode_alone_is_changed_without_touching_the_addresses() -> None:
    # netplan demands that nobody else reads it.
    lines = commands(linked_host(GOOD, {**HAVE, "mode": "0644"}))
    assert [str(line) for line in lines] == [f"chmod 0600 {NETPLAN}", f"chown root:root {NETPLAN}"]


@pytest.mark.parametrize(
    ("changes", "file", "messages"),
    [
        ({}, None, []),
        # A reboot may reset one interface.
        ({f"{PORT} MTU": "1500"}, HAVE, [f"{PORT} MTU: 1500 instead of 9000"]),
        # The cable is back, and nobody has given the port its address.
        ({f"{PORT} addresses": "none"}, HAVE, [f"{PORT} addresses: none instead of 10.77.0.11/24"]),
    ],
)
def test_what_differs_is_tried_and_kept_after_a_login(
    changes: dict[str, str], file: dict[str, Any] | None, messages: list[str]
) -> None:
    host = linked_host({**GOOD, **changes}, file)
    attempt, keep = commands(host)
    assert attempt.get_raw_value() == f"{PROGRAM} try --seconds 40"
    # The file goes through standard input: it replaces nothing before it is on trial.
    assert attempt.connector_arguments["_stdin"] == [TEXT]
    assert isinstance(keep, fabric.KeepAddresses)
    assert keep.get_raw_value() == f"{PROGRAM} keep"
    assert keep.undo_words == tuple(f"{PROGRAM} back".split())
    assert (host.log_messages, host.noop_messages) == (messages, [])


def test_a_port_that_is_hidden_without_its_cable_gets_its_file_once() -> None:
    attempt, keep = commands(linked_host({}, None))
    assert attempt.get_raw_value() == f"{PROGRAM} try --seconds 40"
    assert isinstance(keep, fabric.KeepAddresses)
