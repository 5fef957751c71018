"""The gateway is made to run with its files as they are, and nothing else is touched for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from onhost_fakes import FakeSystemd

from lockstep.onhost.core import layout
from lockstep.onhost.systemd import outdated_units, units

UP = {"ActiveState": "active", "SubState": "running", "MainPID": "7"}


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSystemd:
    return FakeSystemd(tmp_path / "systemd", monkeypatch)


def root(folder: Path, *, file: str | None, runs: str | None) -> layout.Paths:
    """A host whose gateway has a file of one restart key and runs with another; None: neither."""
    paths = layout.Paths(folder / "root")
    unit = paths.root / "etc/systemd/system" / outdated_units.GATEWAY
    unit.parent.mkdir(parents=True)
    if file is not None:
        unit.write_text(f"[Service]\nEnvironment=LOCKSTEP_RESTART_KEY={file}\n")
    if runs is not None:
        (paths.proc / "7").mkdir(parents=True)
        (paths.proc / "7/environ").write_text(f"A=b\0LOCKSTEP_RESTART_KEY={runs}\0")
    return paths


@pytest.mark.parametrize(
    ("file", "runs", "verb"),
    [
        ("aa", "aa", None),
        ("bb", "aa", "restart"),
        ("bb", None, "restart"),
        (None, "aa", "stop"),
        (None, None, None),
    ],
)
def test_what_becomes_of_the_gateway(
    systemd: FakeSystemd, tmp_path: Path, file: str | None, runs: str | None, verb: str | None
) -> None:
    systemd.unit(outdated_units.GATEWAY, **(UP if runs else {}))
    outdated_units.bring_gateway_up_to_date(root(tmp_path, file=file, runs=runs))
    assert systemd.calls == ([f"systemctl {verb} -- {outdated_units.GATEWAY}"] if verb else [])


def test_what_goes_wrong_is_said_and_stops_nobody(
    systemd: FakeSystemd, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    systemd.unit(outdated_units.GATEWAY, **UP, stop_fails="it hangs")
    outdated_units.bring_gateway_up_to_date(root(tmp_path, file=None, runs="aa"))
    assert f"systemctl stop {outdated_units.GATEWAY} failed: it hangs" in capsys.readouterr().out


def test_the_gate_of_a_unit_that_has_no_main_process_yet_is_read(
    systemd: FakeSystemd, tmp_path: Path
) -> None:
    systemd.unit(outdated_units.GATEWAY, ActiveState="activating", MainPID="0", ControlPID="7")
    (unit,) = units.units_by_name([outdated_units.GATEWAY]).values()
    assert not outdated_units.has_outdated_key(unit, root(tmp_path, file="aa", runs="aa"))


def test_a_process_that_cannot_be_read_counts_as_old(tmp_path: Path) -> None:
    unit = units.Unit(outdated_units.GATEWAY, active="active", main_pid=7)
    assert outdated_units.has_outdated_key(unit, root(tmp_path, file="aa", runs=None))


@pytest.mark.parametrize(
    ("file_time", "entry_time", "verb"),
    [
        (100, 100, None),
        (100, 200, None),
        (100, None, "restart"),
        (102, 100, "restart"),
        (None, 100, "stop"),
        (None, None, None),
    ],
)
def test_ports_are_opened_anew_where_their_file_is_newer(
    systemd: FakeSystemd,
    tmp_path: Path,
    file_time: int | None,
    entry_time: int | None,
    verb: str | None,
) -> None:
    paths, name = root(tmp_path, file="aa", runs="aa"), outdated_units.GATEWAY_SOCKET
    systemd.unit(outdated_units.GATEWAY, **UP)
    state = (
        {"ActiveState": "active", "ActiveEnterTimestamp": f"@{entry_time}"} if entry_time else {}
    )
    # The service was started since: that opens nothing.
    systemd.unit(name, StateChangeTimestamp="@900", **state)
    if file_time is not None:
        file = paths.root / "etc/systemd/system" / name
        file.write_text("[Socket]\nListenStream=127.0.0.1:8090\n")
        os.utime(file, (file_time, file_time))
    outdated_units.bring_gateway_up_to_date(paths)
    assert systemd.calls == ([f"systemctl {verb} -- {name}"] if verb else [])
