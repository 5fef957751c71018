"""Preflight: the memory that each model's engine needs at its start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from lockstep.core.errors import RecipeError
from lockstep.core.findings import Finding, Severity
from lockstep.fit import catalogue
from lockstep.fit.advice import PARTS
from lockstep.fit.fit import OVERHEAD, Fit, Minimums, prepare
from lockstep.inventory.host import HostPlan
from lockstep.lock.pins import Pins
from lockstep.onhost.core.memory_requirement import rounded_up
from lockstep.recipes.draft import draft_of
from lockstep.recipes.placeholders import engine_of
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.sizing import Serving

GIB = 1024**3
MIN_FREE = "vm.min_free_kbytes"


def findings(plan: HostPlan, pins: Pins, facts: dict[str, Any]) -> Iterator[Finding]:
    """Yield models whose engine would not start in what is available now.

    Nothing is judged while an engine of ours is up: its memory comes back when it is stopped, and
    the kernel does not say how much that is. The gate judges then.
    """
    if facts["units_up"]:
        return
    taken_gib = _watermark_to_come(plan, facts)
    for model in plan.models:
        for name, _, recipe in model.forms:
            try:
                model_serving = model.serving(recipe)
            except RecipeError:
                continue  # the check of the recipe says it
            case = _Case(
                recipe, model_serving, model.data.memory_minimum.ends, facts["memory"], taken_gib
            )
            if case.short <= 0:
                continue
            draft = draft_of(recipe)
            checkpoints = [recipe.repository, *([draft.model] if draft else [])]
            to_fetch = any(
                pins.checkpoints[checkpoint].missing_bytes(facts["checkpoints"][checkpoint])
                for checkpoint in checkpoints
                if checkpoint in facts["checkpoints"]
            )
            # Memory that is short today may be free tomorrow: only a download makes it an error.
            severity: Severity = "error" if to_fetch else "warning"
            message, remedy = (
                f"{name} {case.message()}",
                case.remedy(f"{model.name}.{model.overrides_key(recipe)}"),
            )
            if facts["gpu_held"]:
                remedy += f" On the GPU: {'; '.join(facts['gpu_held'])}."
            yield Finding("memory-available", severity, plan.name, message, remedy)


def _watermark_to_come(plan: HostPlan, facts: dict[str, Any]) -> float:
    """Return GiB by which the inventory's `vm.min_free_kbytes` will lower MemAvailable.

    0 where the host has that value already. The kernel keeps a high watermark of half as much again
    (`watermark_gib` in hardware.yaml).
    """
    wanted_kib, now = plan.settings.sysctls.get(MIN_FREE, ""), facts["min_free_kib"]
    missing: int = max(0, int(wanted_kib or 0) - now)
    return missing * 1.5 * 1024 / GIB


class _Case:
    """The need of one recipe against the memory available on one host."""

    def __init__(
        self,
        recipe: Recipe,
        serving: Serving,
        minimums: Minimums,
        memory: dict[str, int],
        taken_gib: float,
    ) -> None:
        self._recipe, self._serving = recipe, serving
        self._total, available = (memory[key] / GIB for key in ("MemTotal", "MemAvailable"))
        self._available, self._taken_gib = available - taken_gib, taken_gib
        self._machine = catalogue.knowledge().machine_with(self._total)
        self._fit = prepare(
            recipe,
            catalogue.knowledge(),
            machine=self._machine,
            total=self._total,
            minimums=minimums,
        )
        self._present_fit = self._fit(serving)
        self.short = self._needs(self._present_fit) - self._available

    def _needs(self, host_fit: Fit) -> float:
        return host_fit.need.available(self._total)

    def message(self) -> str:
        """Return the need, the available memory, and the reason for the need."""
        host_fit, need = self._present_fit, self._present_fit.need
        needs, engine = self._needs(host_fit), engine_of(self._recipe)
        lead = f"needs {rounded_up(needs)} GiB available to start, and "
        lead += f"{self._available:.1f} GiB are"
        if self._taken_gib:
            lead += (
                f" (less {self._taken_gib:.1f} GiB that {MIN_FREE} of the inventory will keep free)"
            )
        if need.of_total:
            share = f"{need.share:g} of {self._total:.1f} GiB"
            minimum = f", and {need.minimum_gib:g} GiB must be left for the memory minimum"
            return f"{lead}: {engine.title} asks for {share} at its start{minimum}"
        held_gib = sum(term.gib for term in host_fit.terms if term.name != OVERHEAD)
        if not held_gib:
            return lead
        kept_text = f"{held_gib:.1f} GiB of weights and the KV cache of {host_fit.context} tokens"
        if not need.share:
            return f"{lead}: it is to hold {kept_text}"
        return f"{lead}: {need.share:g} of what {engine.title} finds must hold {kept_text}"

    def remedy(self, key: str) -> str:
        """Return settings below `models` with which it starts; else how much memory is missing."""
        free = f"free {self.short:.1f} GiB (a desktop in use takes about 10)"
        values = self.values()
        if values is None:
            return f"F{free[1:]}, or bind a smaller recipe: `lockstep recipe list`."
        values_text = ", ".join(f'"{key}": {value:g}' for key, value in values.items())
        return f"Set `models.{key}` to {{{values_text}}} (`lockstep help fit`), or {free}."

    def values(self) -> dict[str, float] | None:
        """Return the least change of the share, else also of the context, with which it starts."""
        whole = self._present_fit.context or 0
        machine = catalogue.knowledge().hardware[self._machine]
        highest = round(machine.gib("highest_utilization") * 100)
        own = self._present_fit.need.share * 100
        shares = sorted(range(5, highest + 1), key=lambda percent: abs(percent - own))
        for part in PARTS:
            context = whole // part // 1024 * 1024
            if part > 1 and not context:
                break
            serving = replace(self._serving, context=context) if part > 1 else self._serving
            for share in (percent / 100 for percent in shares):
                if self._starts(replace(serving, utilization=share)):
                    less = {"max_model_len": context} if part > 1 else {}
                    return {"gpu_memory_utilization": share, **less}
        return None

    def _starts(self, serving: Serving) -> bool:
        host_fit = self._fit(serving)
        return host_fit.verdict != "does not fit" and self._needs(host_fit) <= self._available
