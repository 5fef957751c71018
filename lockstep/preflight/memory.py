"""Preflight: the memory that each target's engine needs at its start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from lockstep.core.errors import RecipeError
from lockstep.core.findings import Finding, Severity
from lockstep.fit import catalogue
from lockstep.fit.fit import OVERHEAD, Fit, Floors, prepare
from lockstep.inventory.host import HostPlan
from lockstep.lock.pins import Pins
from lockstep.onhost.core.need import rounded_up
from lockstep.recipes.placeholders import engine_of
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.sizing import Serving, serving

GIB = 1024**3
MIN_FREE = "vm.min_free_kbytes"
# Shorter contexts that are tried where no share is enough.
_PARTS = (2, 4, 8)


def findings(plan: HostPlan, pins: Pins, facts: dict[str, Any]) -> Iterator[Finding]:
    """Targets whose engine would not start in what is available now.

    Not judged while an engine of ours is up: what it holds comes back when it is stopped, and how
    much that is the kernel does not say. The gate judges then.
    """
    if facts["units_up"]:
        return
    taken = _watermark_to_come(plan, facts)
    for target in plan.targets:
        for name, _, recipe in target.forms:
            try:
                asked = serving(recipe, target.overrides(recipe))
            except RecipeError:
                continue  # said by the check of the recipe
            case = _Case(recipe, asked, target.data.memory_floor.ends, facts["memory"], taken)
            if case.short <= 0:
                continue
            draft = recipe.lockstep.draft
            models = [recipe.repository, *([draft.model] if draft else [])]
            to_fetch = any(
                pins.models[model].missing_bytes(facts["models"][model])
                for model in models
                if model in facts["models"]
            )
            # Memory that is short today may be free tomorrow: only a download makes it an error.
            severity: Severity = "error" if to_fetch else "warning"
            message, remedy = (
                f"{name} {case.message()}",
                case.remedy(f"{target.name}.{target.overrides_key(recipe)}"),
            )
            if facts["gpu_held"]:
                remedy += f" On the GPU: {'; '.join(facts['gpu_held'])}."
            yield Finding("memory-available", severity, plan.name, message, remedy)


def _watermark_to_come(plan: HostPlan, facts: dict[str, Any]) -> float:
    """GiB by which `vm.min_free_kbytes` of the inventory will lower this host's MemAvailable.

    Nothing of it where the host has that value already. The kernel keeps a high watermark of half
    as much again (`watermark_gib` in hardware.yaml).
    """
    wanted, now = plan.settings.sysctls.get(MIN_FREE, ""), facts["min_free_kib"]
    missing: int = max(0, int(wanted or 0) - now)
    return missing * 1.5 * 1024 / GIB


class _Case:
    """One recipe's need against what one host has available."""

    def __init__(
        self,
        recipe: Recipe,
        asked: Serving,
        floors: Floors,
        memory: dict[str, int],
        taken: float,
    ) -> None:
        self._recipe, self._asked = recipe, asked
        self._total, available = (memory[key] / GIB for key in ("MemTotal", "MemAvailable"))
        self._available, self._taken = available - taken, taken
        self._machine = catalogue.knowledge().machine_with(self._total)
        self._fit = prepare(
            recipe,
            catalogue.knowledge(),
            machine=self._machine,
            total=self._total,
            floors=floors,
        )
        self._found = self._fit(asked)
        self.short = self._needs(self._found) - self._available

    def _needs(self, found: Fit) -> float:
        return found.need.available(self._total)

    def message(self) -> str:
        """What is needed, what is there, and why so much."""
        found, need = self._found, self._found.need
        needs, engine = self._needs(found), engine_of(self._recipe)
        said = f"needs {rounded_up(needs)} GiB available to start, and "
        said += f"{self._available:.1f} GiB are"
        if self._taken:
            said += f" (less {self._taken:.1f} GiB that {MIN_FREE} of the inventory will keep free)"
        if need.of_total:
            share = f"{need.share:g} of {self._total:.1f} GiB"
            floor = f", and {need.floor_gib:g} GiB must be left for the memory floor"
            return f"{said}: {engine.title} asks for {share} at its start{floor}"
        held = sum(term.gib for term in found.terms if term.name != OVERHEAD)
        if not held:
            return said
        kept = f"{held:.1f} GiB of weights and the KV cache of {found.context} tokens"
        if not need.share:
            return f"{said}: it is to hold {kept}"
        return f"{said}: {need.share:g} of what {engine.title} finds must hold {kept}"

    def remedy(self, key: str) -> str:
        """What to set, below `targets`, so that it starts in what is available; else how much is
        missing."""
        free = f"free {self.short:.1f} GiB (a desktop in use takes about 10)"
        values = self.values()
        if values is None:
            return f"F{free[1:]}, or bind a smaller recipe: `lockstep recipe list`."
        said = ", ".join(f'"{key}": {value:g}' for key, value in values.items())
        return f"Set `targets.{key}` to {{{said}}} (`lockstep help fit`), or {free}."

    def values(self) -> dict[str, float] | None:
        """The least change of the share, else also of the context, with which it starts."""
        whole = self._found.context or 0
        machine = catalogue.knowledge().hardware[self._machine]
        highest = round(machine.gib("highest_utilization") * 100)
        own = self._found.need.share * 100
        shares = sorted(range(5, highest + 1), key=lambda percent: abs(percent - own))
        for part in (1, *_PARTS):
            context = whole // part // 1024 * 1024
            if part > 1 and not context:
                break
            asked = replace(self._asked, context=context) if part > 1 else self._asked
            for share in (percent / 100 for percent in shares):
                if self._starts(replace(asked, utilization=share)):
                    less = {"max_model_len": context} if part > 1 else {}
                    return {"gpu_memory_utilization": share, **less}
        return None

    def _starts(self, asked: Serving) -> bool:
        found = self._fit(asked)
        return found.verdict != "does not fit" and self._needs(found) <= self._available
