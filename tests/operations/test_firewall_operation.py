"""The firewall's rules are kept only after a fresh login, and reverted if it fails."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from a_host import Host, deploying
from pyinfra.api.exceptions import ConnectError
from pyinfra.connectors.local import LocalConnector
from pyinfra.connectors.ssh import SSHConnector

from lockstep.onhost.facts.reader_helpers import seal
from lockstep.resources.files import KEY
from lockstep.system.firewall import UNIT
from lockstep.tasks.operations import firewall

RULES = "table inet lockstep {}\n"
PROGRAM = "/usr/bin/python3 /usr/local/lib/lockstep firewall"
GOOD = seal(KEY, RULES.encode())
GOOD_UNIT = {
    "LoadState": "loaded",
    "ActiveState": "active",
    "SubState": "exited",
    "UnitFileState": "enabled",
    "FragmentPath": f"/etc/systemd/system/{UNIT}",
    "NeedDaemonReload": "no",
    "restart_key": "",
}
LOAD = [f"{PROGRAM} try --seconds 90", f"a fresh login, then {PROGRAM} keep"]
START = "systemctl enable --now --quiet lockstep-firewall.service"


def reached_host(
    table: str | None, connector: Any = None, unit: dict[str, Any] = GOOD_UNIT
) -> Host:
    """A host with a table, reached by one kind of connection."""
    tables = {} if table is None else {"inet lockstep": table}
    host = Host({"firewall": {"firewall table": tables}, "units": {UNIT: unit}})
    host.connector = connector
    return host


def commands(host: Host) -> list[Any]:
    with deploying(host):
        return list(firewall.load_rules._inner(rules=RULES, ssh_ports=(22,)))


@pytest.mark.parametrize(
    ("table", "unit", "expected_commands"),
    [
        # A wiped host, another set of rules, and rules that somebody changed by hand.
        (None, {"LoadState": "not-found"}, [*LOAD, "systemctl daemon-reload", START]),
        (32 * "0", {}, LOAD),
        ("other rules", {}, LOAD),
        (GOOD, {"UnitFileState": "disabled"}, [START]),
        (GOOD, {"NeedDaemonReload": "yes"}, ["systemctl daemon-reload"]),
        (GOOD, {}, []),
    ],
    # A seal is another one in each process, and these must agree about names.
    ids=range(6),
)
def test_what_is_missing_is_brought_about(
    table: str | None, unit: dict[str, Any], expected_commands: list[str]
) -> None:
    host = reached_host(table, unit={**GOOD_UNIT, **unit})
    lines = [
        "a fresh login, then " * isinstance(command, firewall.KeepAfterLogin)
        + command.get_raw_value()
        for command in commands(host)
    ]
    assert lines == expected_commands
    assert bool(host.noop_messages) is (expected_commands == [])


def logged_in(host: Host) -> bool:
    """Run the step after `try`; tells whether it goes well."""
    state = SimpleNamespace(print_output=False, print_input=False)
    [step] = [command for command in commands(host) if isinstance(command, firewall.KeepAfterLogin)]
    return bool(step.execute(state, host, {"_sudo": True})[0])


class Ssh(SSHConnector):
    """A connection that works."""

    def __init__(self) -> None:
        pass


@pytest.mark.parametrize("works", [True, False])
def test_the_login_is_a_new_one_and_its_failure_brings_the_old_rules_back(
    works: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[str] = []

    class Fresh(Ssh):
        def __init__(self, state: Any, host: Any) -> None:
            self.client = SimpleNamespace(close=lambda: events.append("closed"))  # type: ignore[assignment]

        def connect(self) -> None:
            events.append("opened")
            if not works:
                raise ConnectError("timed out")

    host = reached_host("other rules", connector=Ssh())
    monkeypatch.setattr(firewall, "SSHConnector", Fresh)
    host.connector.__class__ = Fresh
    assert logged_in(host) is works
    assert events == (["opened", "closed"] if works else ["opened"])
    assert host.commands == [f"{PROGRAM} keep" if works else f"{PROGRAM} back"]


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
    assert host.commands == [f"{PROGRAM} keep" if works else f"{PROGRAM} back"]
