"""The client of `systemctl`; the gateway is made to run with its files as they are."""

import os
from pathlib import Path

import pytest

from lockstep.onhost.core import errors, layout
from lockstep.onhost.systemd import outdated_units, units
from lockstep.onhost.systemd.outdated_units import GATEWAY

UP = {"ActiveState": "active", "SubState": "running", "MainPID": "7"}


def root(folder: Path, *, file: str | None, runs: str | None) -> layout.Paths:
    """A host whose gateway has a file of one restart key and runs with another; None: neither."""
    paths = layout.Paths(folder / "root")
    unit = paths.root / "etc/systemd/system" / GATEWAY
    unit.parent.mkdir(parents=True)
    if file is not None:
        unit.write_text(f"[Service]\nEnvironment=LOCKSTEP_RESTART_KEY={file}\n")
    if runs:
        (paths.proc / "7").mkdir(parents=True)
        (paths.proc / "7/environ").write_text(f"A=b\0LOCKSTEP_RESTART_KEY={runs}\0")
    return paths


@pytest.mark.parametrize(
    ("file", "runs", "verb"),
    [
        ("aa", "aa", None),
        ("bb", "aa", "restart"),
        ("bb", None, "restart"),
        # A process that cannot be read counts as old.
        ("bb", "", "restart"),
        (None, "aa", "stop"),
    ],
)
def test_a_gateway_runs_with_its_file_or_not_at_all(systemd, tmp_path, file, runs, verb):
    systemd.unit(GATEWAY, **({} if runs is None else UP))
    outdated_units.bring_gateway_up_to_date(root(tmp_path, file=file, runs=runs))
    assert systemd.calls == ([f"systemctl {verb} -- {GATEWAY}"] if verb else [])


def test_a_stop_that_fails_is_said_and_a_unit_without_a_main_process_yet_is_read(
    systemd, tmp_path, capsys
):
    paths = root(tmp_path, file="aa", runs="aa")
    systemd.unit(GATEWAY, ActiveState="activating", MainPID="0", ControlPID="7")
    assert not outdated_units.has_outdated_key(units.units_by_name([GATEWAY])[GATEWAY], paths)
    (paths.root / "etc/systemd/system" / GATEWAY).unlink()
    systemd.unit(GATEWAY, **UP, stop_fails="it hangs")
    outdated_units.bring_gateway_up_to_date(paths)
    assert f"systemctl stop {GATEWAY} failed: it hangs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("file_time", "entry_time", "verb"),
    [(100, 100, None), (100, None, "restart"), (102, 100, "restart"), (None, 100, "stop")],
)
def test_ports_are_opened_anew_where_their_file_is_newer(
    systemd, tmp_path, file_time, entry_time, verb
):
    paths, name = root(tmp_path, file="aa", runs="aa"), outdated_units.GATEWAY_SOCKET
    systemd.unit(GATEWAY, **UP)
    entry = {"ActiveState": "active", "ActiveEnterTimestamp": f"@{entry_time}"}
    # The service was started since: that opens nothing.
    systemd.unit(name, StateChangeTimestamp="@900", **(entry if entry_time else {}))
    if file_time is not None:
        file = paths.root / "etc/systemd/system" / name
        file.write_text("[Socket]\nListenStream=127.0.0.1:8090\n")
        os.utime(file, (file_time, file_time))
    outdated_units.bring_gateway_up_to_date(paths)
    assert systemd.calls == ([f"systemctl {verb} -- {name}"] if verb else [])


def test_a_template_has_no_state_and_a_pattern_stands_for_the_units_that_systemd_holds(systemd):
    systemd.unit("a.service", ActiveState="active")
    for name in ("b@.service", "job-a.service", "job-b.service"):
        systemd.unit(name)
    answer = units.units_by_name(["b@.service", "a.service", "job-*.service"])
    assert {name: unit.active for name, unit in answer.items()} == {
        **dict.fromkeys(("b@.service", "job-a.service", "job-b.service"), "inactive"),
        "a.service": "active",
    }
    assert units.units_by_name(["b@.service"])["b@.service"].load == "not-found"
    assert units.properties(["none-*.service"]) == {}


def test_a_unit_without_an_answer_is_named(monkeypatch):
    monkeypatch.setattr(units, "_systemctl_output", lambda *words: "Id=a.service\n")
    with pytest.raises(errors.Problem, match=r"said nothing of b\.service"):
        units.units_by_name(["a.service", "b.service"])
