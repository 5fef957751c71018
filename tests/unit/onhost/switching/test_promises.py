"""A promise of one part holds in all others: gate, preflight and the memory minimum.

The stand-in for an engine takes exactly what was promised: the most that it may hold, at once,
while it loads, and it keeps that while it serves.
"""

import json
import re
from functools import cache
from typing import Any

import pytest
from a_spark import GIB, healthy, pins_for, spark
from onhost_fakes import host_root, write_meminfo

from group_data import all as group_data
from lockstep import preflight
from lockstep.fit.fit import prepare
from lockstep.inventory.host import HostPlan
from lockstep.onhost.core import config, errors
from lockstep.onhost.switching import memory_watch, start_gate
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
    """A host whose memory a test decides, with the real gate."""

    def __init__(self, tmp_path, monkeypatch, total: float) -> None:
        self.paths, self.total = host_root(tmp_path / "root", {}), total
        self.config = host_of(PLAN)
        monkeypatch.setattr(start_gate.runner, "run", lambda *_, **__: None)

    def is_admitted(self, model: config.Model, gib: float) -> bool:
        write_meminfo(self.paths, gib, total_gib=self.total)
        try:
            start_gate.Gate(model, self.config, self.paths, wait_s=0.0).wait_for_memory()
        except errors.Problem:
            return False
        return True

    def is_ended(self, model: config.Model, gib: float) -> bool:
        """Tell whether the memory watch has to end an engine that takes its whole promise."""
        room_gib = gib - engine_share_gib(model, gib, self.total)
        return room_gib < max(memory_watch.minimums(model).values())


@pytest.fixture
def host(tmp_path, monkeypatch, total) -> Spark:
    return Spark(tmp_path, monkeypatch, total)


@pytest.mark.parametrize("total", TOTALS)
def test_what_the_gate_admits_the_memory_watch_does_not_end(host):
    models = host.config.models.values()
    starts = [(model, gib) for model in models for gib in VALUES if host.is_admitted(model, gib)]
    assert [(model.name, gib) for model, gib in starts if host.is_ended(model, gib)] == []
    names = {model.name for model, _ in starts}
    assert names == set(host.config.models), "each starts on a Spark at rest"


@pytest.fixture
def fits_once(monkeypatch) -> None:
    """Compute each fit once: it does not depend on the available memory."""
    fits: dict[Any, Any] = {}

    def prepare_once(recipe, *arguments, **keywords):
        key = (recipe.name, *(keywords[name] for name in ("machine", "total", "minimums")))
        if key not in fits:
            fits[key] = cache(prepare(recipe, *arguments, **keywords))
        return fits[key]

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
    # Up to a Spark at rest; below these values nothing helps.
    for gib in (total * (0.55 + 0.02 * step) for step in range(20)):
        models, names = applied_advice(plan, model_data, gib, total)
        if names:
            host.config = host_of(spark(models=models, expected=expected))
        for model in (host.config.models[name] for name in names):
            applied_count += 1
            if not host.is_admitted(model, gib) or host.is_ended(model, gib):
                wrong.append(f"{model.name} with {gib} of {total}")
    assert applied_count > 5 and wrong == []
