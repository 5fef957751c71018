"""The client of `systemctl`."""

from __future__ import annotations

from pathlib import Path

import pytest
from onhost_fakes import FakeSystemd

from lockstep.onhost.core import errors
from lockstep.onhost.systemd import units


def test_a_template_among_units_has_no_state_and_spoils_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemd = FakeSystemd(tmp_path, monkeypatch)
    systemd.unit("a.service", ActiveState="active")
    systemd.unit("b@.service")
    answer = units.units_by_name(["b@.service", "a.service"])
    assert {name: unit.active for name, unit in answer.items()} == {
        "b@.service": "inactive",
        "a.service": "active",
    }
    assert units.units_by_name(["b@.service"])["b@.service"].load == "not-found"


def test_a_pattern_stands_for_the_units_that_systemd_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemd = FakeSystemd(tmp_path, monkeypatch)
    for name in ("job-a.service", "job-b.service", "z.service"):
        systemd.unit(name)
    assert sorted(units.units_by_name(["job-*.service", "z.service"])) == [
        "job-a.service",
        "job-b.service",
        "z.service",
    ]
    assert units.properties(["none-*.service"]) == {}


def test_a_unit_without_an_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "_systemctl_output", lambda *words: "Id=a.service\n")
    with pytest.raises(errors.Problem, match=r"said nothing of b\.service"):
        units.units_by_name(["a.service", "b.service"])
