"""The fast link and the firewall: tried, logged in to, and only then kept."""

from types import SimpleNamespace
from typing import Any

import pytest
from a_host import Host, deploying
from a_spark import spark
from pyinfra.api.exceptions import ConnectError
from pyinfra.connectors.local import LocalConnector
from pyinfra.connectors.ssh import SSHConnector

from lockstep.files.managed_file import ManagedFile
from lockstep.onhost.facts.reader_helpers import seal
from lockstep.resources.files import KEY
from lockstep.system.firewall import UNIT
from lockstep.system.netplan import NETPLAN
from lockstep.tasks.operations import fabric, firewall

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
def test_what_differs_is_tried_and_kept_after_a_login(changes, file, messages) -> None:
    host = linked_host({**GOOD, **changes}, file)
    attempt, keep = commands(host)
    assert attempt.get_raw_value() == f"{PROGRAM} try --seconds 40"
    # The file goes through standard input: it replaces nothing before it is on trial.
    assert attempt.connector_arguments["_stdin"] == [TEXT]
    assert isinstance(keep, fabric.KeepAddresses)
    assert keep.get_raw_value() == f"{PROGRAM} keep"
    assert keep.undo_words == tuple(f"{PROGRAM} back".split())
    assert (host.log_messages, host.noop_messages) == (messages, [])


RULES = "table inet lockstep {}\n"
FIREWALL = "/usr/bin/python3 /usr/local/lib/lockstep firewall"
GOOD_RULES = seal(KEY, RULES.encode())
GOOD_UNIT = {
    "LoadState": "loaded",
    "ActiveState": "active",
    "SubState": "exited",
    "UnitFileState": "enabled",
    "FragmentPath": f"/etc/systemd/system/{UNIT}",
    "NeedDaemonReload": "no",
    "restart_key": "",
}
LOAD = [f"{FIREWALL} try --seconds 90", f"a fresh login, then {FIREWALL} keep"]
START = "systemctl enable --now --quiet lockstep-firewall.service"


def reached_host(
    table: str | None, connector: Any = None, unit: dict[str, Any] = GOOD_UNIT
) -> Host:
    """A host with a table, reached by one kind of connection."""
    tables = {} if table is None else {"inet lockstep": table}
    host = Host({"firewall": {"firewall table": tables}, "units": {UNIT: unit}})
    host.connector = connector
    return host


def firewall_commands(host: Host) -> list[Any]:
    with deploying(host):
        return list(firewall.load_rules._inner(rules=RULES, ssh_ports=(22,)))


@pytest.mark.parametrize(
    ("table", "unit", "expected_commands"),
    [
        # A wiped host, and another set of rules.
        (None, {"LoadState": "not-found"}, [*LOAD, START]),
        ("other rules", {}, LOAD),
        (GOOD_RULES, {"UnitFileState": "disabled"}, [START]),
        (GOOD_RULES, {"NeedDaemonReload": "yes"}, ["systemctl daemon-reload"]),
        (GOOD_RULES, {}, []),
    ],
    # A seal is another one in each process, and these must agree about names.
    ids=range(5),
)
def test_what_is_missing_is_brought_about(table: Any, unit: Any, expected_commands: Any) -> None:
    host = reached_host(table, unit={**GOOD_UNIT, **unit})
    lines = [
        "a fresh login, then " * isinstance(command, firewall.KeepAfterLogin)
        + command.get_raw_value()
        for command in firewall_commands(host)
    ]
    assert lines == expected_commands
    assert bool(host.noop_messages) is (expected_commands == [])


def logged_in(host: Host) -> bool:
    """Run the step after `try`; tells whether it goes well."""
    state = SimpleNamespace(print_output=False, print_input=False)
    steps = [item for item in firewall_commands(host) if isinstance(item, firewall.KeepAfterLogin)]
    [step] = steps
    return bool(step.execute(state, host, {"_sudo": True})[0])


@pytest.mark.parametrize("works", [True, False])
def test_the_login_is_a_new_one_and_its_failure_brings_the_old_rules_back(
    works: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[str] = []

    class Fresh(SSHConnector):
        def __init__(self, state: Any, host: Any) -> None:
            self.client = SimpleNamespace(close=lambda: events.append("closed"))  # type: ignore[assignment]

        def connect(self) -> None:
            events.append("opened")
            if not works:
                raise ConnectError("timed out")

    host = reached_host("other rules", connector=Fresh.__new__(Fresh))
    monkeypatch.setattr(firewall, "SSHConnector", Fresh)
    assert logged_in(host) is works
    assert events == (["opened", "closed"] if works else ["opened"])
    assert host.commands == [f"{FIREWALL} keep" if works else f"{FIREWALL} back"]


@pytest.mark.parametrize(
    ("connection", "works"),
    [("10.0.0.9 51000 10.0.0.1 22", True), ("", True), ("10.0.0.9 51000 10.0.0.1 2222", False)],
)
def test_on_the_host_itself_the_port_of_its_ssh_session_must_stay_open(
    connection: str, works: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_CONNECTION", connection)
    local = LocalConnector.__new__(LocalConnector)
    host = reached_host("other rules", connector=local)
    assert logged_in(host) is works
    assert host.commands == [f"{FIREWALL} keep" if works else f"{FIREWALL} back"]
