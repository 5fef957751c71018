"""What one part promises, no other part ends: gate, preflight, plan and the memory floor.

An engine is stood in for by one that takes exactly what was promised: the most that it holds, at
once, while it loads, and keeps that while it serves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from a_spark import GIB, healthy, pins_for, spark
from onhost_fakes import FakeSystemd, host_root, write_meminfo

from group_data import all as group_data
from lockstep import preflight
from lockstep.deploy.plan import plan_hosts
from lockstep.fit import catalogue as catalogues
from lockstep.fit.fit import prepare
from lockstep.inventory.host import HostPlan
from lockstep.onhost.core import config, errors
from lockstep.onhost.records import ended
from lockstep.onhost.switching import gate, memory_floor
from lockstep.preflight import memory
from lockstep.units.targets_json import known_to_host
from lockstep.units.variants import variants

PLAN = spark()
PINS = pins_for(PLAN)
TOTALS = (119.6, 121.69)
#: With MemTotal of the Spark with 64 GB.
EVERY_TOTAL = (*TOTALS, 59.78)
#: MemAvailable, GiB: from nearly nothing to a Spark at rest.
VALUES = tuple(38 + 2 * step for step in range(40))
LOADING = {"ActiveState": "activating", "SubState": "start-post", "MainPID": "7"}
HOT = {"ActiveState": "active", "SubState": "running", "MainPID": "7"}


def host_of(plan: HostPlan) -> config.Host:
    """What the deploy tells the host's programs."""
    made = variants(plan.settings, plan.targets, pins_for(plan), engine_id="e")
    return known_to_host(plan.settings, made)


def held(target: config.Target, available: float, total: float) -> float:
    """What the engine takes, GiB: a share of all, or of what it finds, or a size."""
    need = target.need
    if not need.share:
        return need.gib
    of = total if need.of_total else available - need.beside_gib
    return need.share * of + need.beside_gib


class Spark:
    """A host whose memory is what a test says, with the real gate and the real floor."""

    def __init__(self, tmp_path: Any, monkeypatch: Any) -> None:
        self.paths = host_root(tmp_path / "root", {})
        self.systemd = FakeSystemd(tmp_path / "systemd", monkeypatch)
        # One process of `systemctl` for each look would take minutes here.
        monkeypatch.setattr(memory_floor.units, "show", self.show)
        monkeypatch.setattr(gate.runner, "run", lambda *_, **__: None)
        monkeypatch.setattr(memory_floor, "_systemctl", lambda *_: None)
        monkeypatch.setattr(memory_floor, "_sigkill", lambda *_: None)
        monkeypatch.setattr(memory_floor.docker_api.Docker, "container", lambda *_: None)
        self.state: dict[str, Any] = {}

    def show(self, names: Any) -> dict[str, Any]:
        off = memory_floor.units.Unit("off", load="loaded")
        return {name: self.state.get(name, off) for name in names}

    def is_admitted(
        self, target: config.Target, host: config.Host, gib: float, total: float
    ) -> bool:
        write_meminfo(self.paths, gib, total_gib=total)
        try:
            gate.Gate(target, host, self.paths, wait_s=0.0).wait_for_memory()
        except errors.Problem:
            return False
        return True

    def killed(self, target: config.Target, host: config.Host, gib: float, total: float) -> str:
        """In which phase the floor ends an engine that takes all that it was promised; "": none."""
        floor = memory_floor.Floor(self.paths, lambda *_: None)
        floor._targets = lambda: list(host.targets.values())  # type: ignore[method-assign]
        write_meminfo(self.paths, gib - held(target, gib, total), total_gib=total)
        for words in (LOADING, HOT):
            active, sub, pid = words.values()
            unit = memory_floor.units.Unit(
                target.unit, load="loaded", active=active, sub=sub, main_pid=int(pid)
            )
            self.state = {target.unit: unit}
            floor.step()
            for end in ended.every(self.paths):
                ended.forget(self.paths, target.unit)
                return f"{target.name} with {gib:.1f} of {total}: {end.reason}"
        return ""


@pytest.fixture
def host(tmp_path: Any, monkeypatch: Any) -> Iterator[Spark]:
    yield Spark(tmp_path, monkeypatch)


@pytest.mark.parametrize("total", TOTALS)
def test_what_the_gate_admits_the_floor_does_not_end(host: Spark, total: float) -> None:
    known = host_of(PLAN)
    admitted, killed = set(), []
    for target in known.targets.values():
        for step in range(3):
            for gib in VALUES:
                if host.is_admitted(target, known, gib + step / 3, total):
                    admitted.add(target.name)
                    killed.append(host.killed(target, known, gib + step / 3, total))
    assert [each for each in killed if each] == []
    assert admitted == set(known.targets), "each starts on a Spark at rest"


@pytest.mark.parametrize("total", TOTALS)
def test_what_the_plan_says_fits_is_admitted_on_a_spark_at_rest(host: Spark, total: float) -> None:
    known, catalogue = host_of(PLAN), catalogues.load(catalogues.FOLDER)
    machine = catalogue.knowledge.hardware[catalogues.machine_of(PLAN.settings)]
    [planned] = plan_hosts((PLAN,), PINS, catalogue).hosts
    fitting = [each.name for each in planned.targets if each.fit and each.fit.verdict == "fits"]
    assert set(fitting) == {name for name in known.targets if not name.endswith("-fallback")}
    for name in fitting:
        assert host.is_admitted(known.targets[name], known, machine.at_rest_gib(total), total), name


@pytest.fixture
def fits_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One computation for each fit: what is available is no part of it."""
    known: dict[Any, Any] = {}

    def prepare_once(recipe: Any, *rest: Any, **named: Any) -> Any:
        key = (recipe.name, *(named[name] for name in ("machine", "total", "floors")))
        if key not in known:
            known[key] = cache(prepare(recipe, *rest, **named))
        return known[key]

    monkeypatch.setattr(memory, "prepare", prepare_once)


@pytest.mark.usefixtures("fits_once")
@pytest.mark.parametrize("floor", [{}, {"loading_gib": 10.0, "serving_gib": 9.0}])
@pytest.mark.parametrize("total", EVERY_TOTAL)
def test_what_preflight_says_to_set_is_admitted_and_lives(
    host: Spark, total: float, floor: dict[str, float]
) -> None:
    wrong: list[str] = []
    applied = 0
    own = {"memory_floor": floor} if floor else {}
    bound = {name: {**data, **own} for name, data in group_data.targets.items()}
    if total < min(TOTALS):
        # What the plan advises there: with its own share `qwen` holds no sequence.
        bound["qwen"] = {**bound["qwen"], "overrides": {"gpu_memory_utilization": 0.75}}
    plan = spark(targets=bound, expected={"memory_gib": 0.94 * total})
    # 40 values, up to a Spark at rest; below them nothing helps.
    for gib in (total * (0.55 + 0.01 * step) for step in range(40)):
        facts = {
            **healthy(plan, 0.0),
            "memory": {"MemTotal": int(total * GIB), "MemAvailable": int(gib * GIB)},
        }
        targets = {name: dict(data) for name, data in bound.items()}
        named = set()
        for finding in preflight.findings(plan, PINS, facts):
            said = re.findall(r'"(\w+)": ([\d.]+)', finding.remedy)
            where = re.search(r"`targets\.([\w-]+)\.(\w*overrides)`", finding.remedy)
            if finding.code != "memory-available" or not said or not where:
                continue
            values = {key: float(value) if "." in value else int(value) for key, value in said}
            data = targets[where[1]]
            data[where[2]] = {**(data.get(where[2]) or {}), **values}
            named.add(finding.message.split(" ")[0])
        if not named:
            continue
        known = host_of(spark(targets=targets, expected={"memory_gib": 0.94 * total}))
        for name in named:
            target = known.targets[name]
            applied += 1
            if not host.is_admitted(target, known, gib, total):
                wrong.append(f"{name} with {gib} of {total}: refused with what preflight said")
            elif killed := host.killed(target, known, gib, total):
                wrong.append(killed)
    assert applied > 10
    assert wrong == []
