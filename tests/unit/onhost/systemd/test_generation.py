"""The gateway is made to run with its files as they are, and nothing else is touched for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from onhost_fakes import FakeSystemd

from lockstep.onhost.core import layout
from lockstep.onhost.systemd import generation, units

UP = {"ActiveState": "active", "SubState": "running", "MainPID": "7"}


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSystemd:
    return FakeSystemd(tmp_path / "systemd", monkeypatch)


def root(folder: Path, *, file: str | None, runs: str | None) -> layout.Paths:
    """A host whose gateway has a file of one restart key and runs with another; None: neither."""
    paths = layout.Paths(folder / "root")
    unit = paths.root / "etc/systemd/system" / generation.GATEWAY
    unit.parent.mkdir(parents=True)
    if file is not None:
        unit.write_text(f"[Service]\nEnvironment=LOCKSTEP_GENERATION={file}\n")
    if runs is not None:
        (paths.proc / "7").mkdir(parents=True)
        (paths.proc / "7/environ").write_text(f"A=b\0LOCKSTEP_GENERATION={runs}\0")
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
    systemd.unit(generation.GATEWAY, **(UP if runs else {}))
    generation.gateway_in_force(root(tmp_path, file=file, runs=runs))
    assert systemd.calls == ([f"systemctl {verb} -- {generation.GATEWAY}"] if verb else [])


def test_what_goes_wrong_is_said_and_stops_nobody(
    systemd: FakeSystemd, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    systemd.unit(generation.GATEWAY, **UP, stop_fails="it hangs")
    generation.gateway_in_force(root(tmp_path, file=None, runs="aa"))
    assert f"stop of {generation.GATEWAY} failed: it hangs" in capsys.readouterr().out


def test_a_process_that_cannot_be_read_counts_as_old(tmp_path: Path) -> None:
    unit = units.Unit(generation.GATEWAY, active="active", main_pid=7)
    assert generation.old(unit, root(tmp_path, file="aa", runs=None))
