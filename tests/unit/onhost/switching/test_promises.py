"""A promise of one part holds in all others: gate, preflight, plan and the memory minimum.

The stand-in for an engine takes exactly what was promised: the most that it may hold, at once,
while it loads, and it keeps that while it serves.
"""

from __future__ import annotations

import json
import re
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
from lockstep.onhost.records import watch_findings
from lockstep.onhost.switching import memory_watch, start_gate
from lockstep.onhost.systemd import units
from lockstep.preflight import memory
from lockstep.units.model_variants import variants
from lockstep.units.models_json import host_configuration

PLAN = spark()
PINS = pins_for(PLAN)
TOTALS = (119.6, 121.69)
#: MemAvailable, GiB: from nearly nothing to a Spark at rest.
VALUES = [38 + 2 * step + third / 3 for third in range(3) for step in range(40)]


def host_of(plan: HostPlan) -> config.HostConfig:
    """The host's configuration for these models, as the deploy writes it."""
    host_variants = variants(plan.settings, plan.models, pins_for(plan), engine_id="e")
    return host_configuration(plan.settings, host_variants)


def engine_share_gib(model: config.Model, available: float, total: float) -> float:
    """The engine's share in GiB: a share of all memory, of the memory that it finds, or a size."""
    need = model.memory_need
    if not need.share:
        return need.gib
    of = total if need.of_total else available - need.beside_gib
    return need.share * of + need.beside_gib


class Spark:
    """A host whose memory a test decides, with the real gate and the real memory watch."""

    def __init__(self, tmp_path, monkeypatch, total: float) -> None:
        self.paths, self.total = host_root(tmp_path / "root", {}), total
        self.config = host_of(PLAN)
        FakeSystemd(tmp_path / "systemd", monkeypatch)
        # One process of `systemctl` for each look would take minutes here.
        monkeypatch.setattr(memory_watch.units, "units_by_name", self.show)
        monkeypatch.setattr(start_gate.runner, "run", lambda *_, **__: None)
        for name in ("_control_unit", "_sigkill", "docker_api.Docker.container"):
            monkeypatch.setattr(f"lockstep.onhost.switching.memory_watch.{name}", lambda *_: None)
        self.watch = memory_watch.MemoryWatch(self.paths, lambda *_: None)
        self.watch._bound_models = lambda: list(self.config.models.values())
        self.state: dict[str, units.Unit] = {}

    def show(self, names):
        off = units.Unit("off", load="loaded")
        return {name: self.state.get(name, off) for name in names}

    def is_admitted(self, model: config.Model, gib: float) -> bool:
        write_meminfo(self.paths, gib, total_gib=self.total)
        try:
            start_gate.Gate(model, self.config, self.paths, wait_s=0.0).wait_for_memory()
        except errors.Problem:
            return False
        return True

    def minimum_kill(self, model: config.Model, gib: float) -> str:
        """The reason that the memory watch has to end an engine that takes its whole promise."""
        share_gib = engine_share_gib(model, gib, self.total)
        write_meminfo(self.paths, gib - share_gib, total_gib=self.total)
        for active, sub in (("activating", "start-post"), ("active", "running")):
            unit = units.Unit(model.unit, load="loaded", active=active, sub=sub, main_pid=7)
            self.state = {model.unit: unit}
            self.watch.check_memory()
            for end in watch_findings.load(self.paths).kills.values():
                watch_findings.remove_kill(self.paths, model.unit)
                return f"{model.name} with {gib:.1f} of {self.total}: {end.reason}"
        return ""


@pytest.fixture
def host(tmp_path, monkeypatch, total) -> Spark:
    return Spark(tmp_path, monkeypatch, total)


@pytest.mark.parametrize("total", TOTALS)
def test_what_the_gate_admits_the_memory_watch_does_not_end(host):
    admitted_models, memory_kills = set(), []
    for model in host.config.models.values():
        for gib in VALUES:
            if host.is_admitted(model, gib):
                admitted_models.add(model.name)
                memory_kills.append(host.minimum_kill(model, gib))
    assert [kill_text for kill_text in memory_kills if kill_text] == []
    assert admitted_models == set(host.config.models), "each starts on a Spark at rest"


@pytest.mark.parametrize("total", TOTALS)
def test_what_the_plan_says_fits_is_admitted_on_a_spark_at_rest(host):
    catalogue, models = catalogues.load(catalogues.FOLDER), host.config.models
    machine = catalogue.knowledge.hardware[catalogues.machine_of(PLAN.settings)]
    [planned_host] = plan_hosts((PLAN,), PINS, catalogue).hosts
    planned_models = [model for model in planned_host.models if model.fit]
    fitting = {model.name for model in planned_models if model.fit.verdict == "fits"}
    assert fitting == {name for name in models if not name.endswith("-fallback")}
    for name in fitting:
        assert host.is_admitted(models[name], machine.at_rest_gib(host.total)), name


@pytest.fixture
def fits_once(monkeypatch) -> None:
    """Compute each fit once: it does not depend on the available memory."""
    cached_results: dict[Any, Any] = {}

    def prepare_once(recipe: Any, *arguments: Any, **keywords: Any) -> Any:
        key = (recipe.name, *(keywords[name] for name in ("machine", "total", "minimums")))
        if key not in cached_results:
            cached_results[key] = cache(prepare(recipe, *arguments, **keywords))
        return cached_results[key]

    monkeypatch.setattr(memory, "prepare", prepare_once)


def applied_advice(plan: HostPlan, models: dict[str, Any], gib: float, total: float):
    """The models with the settings that preflight says to set, and the names of those."""
    memory = {"MemTotal": int(total * GIB), "MemAvailable": int(gib * GIB)}
    models, named_models = {name: dict(data) for name, data in models.items()}, set()
    for finding in preflight.findings(plan, PINS, {**healthy(plan, 0.0), "memory": memory}):
        settings = dict(re.findall(r'"(\w+)": ([\d.]+)', finding.remedy))
        where = re.search(r"`models\.([\w-]+)\.(\w*overrides)`", finding.remedy)
        if finding.code == "memory-available" and settings and where:
            values = {key: json.loads(value) for key, value in settings.items()}
            data = models[where[1]]
            data[where[2]] = {**(data.get(where[2]) or {}), **values}
            named_models.add(finding.message.split(" ")[0])
    return models, named_models


@pytest.mark.usefixtures("fits_once")
@pytest.mark.parametrize("minimum", [{}, {"loading_gib": 10.0, "serving_gib": 9.0}])
# With MemTotal of the Spark with 64 GB.
@pytest.mark.parametrize("total", (*TOTALS, 59.78))
def test_what_preflight_says_to_set_is_admitted_and_lives(host, total, minimum):
    wrong, applied_count = [], 0
    own = {"memory_minimum": minimum} if minimum else {}
    model_data = {name: {**data, **own} for name, data in group_data.models.items()}
    if total < min(TOTALS):
        # What the plan advises there: with its own share `qwen` holds no sequence.
        model_data["qwen"] = {**model_data["qwen"], "overrides": {"gpu_memory_utilization": 0.75}}
    expected = {"memory_gib": 0.94 * total}
    plan = spark(models=model_data, expected=expected)
    # 40 values, up to a Spark at rest; below them nothing helps.
    for gib in (total * (0.55 + 0.01 * step) for step in range(40)):
        models, names = applied_advice(plan, model_data, gib, total)
        if names:
            host.config = host_of(spark(models=models, expected=expected))
        for model in (host.config.models[name] for name in names):
            applied_count += 1
            if not host.is_admitted(model, gib):
                wrong.append(f"{model.name} with {gib} of {total}: refused as preflight said")
            elif kill_text := host.minimum_kill(model, gib):
                wrong.append(kill_text)
    assert applied_count > 10 and wrong == []
