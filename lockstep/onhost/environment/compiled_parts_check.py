"""The parts of an installed vLLM that its recipes will use: compiled extensions and kernels.

Without a GPU, the extensions are loaded as far as that needs none. With a GPU, each part runs a
small kernel, which is compared with PyTorch (`kernel_self_test`).
"""

from __future__ import annotations

import fnmatch
import importlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from lockstep.onhost import engines
from lockstep.onhost.environment import kernel_self_test

VLLM = engines.ENGINES["vllm"]
#: Memory of a process with CUDA, PyTorch and vLLM on a Spark (2.7 GiB), and room for the rest.
ROOM_GIB = 6.0
#: Beginning of a part's name → the extensions that it calls, by all their names since 0.17.
EXTENSIONS = (
    (("normalisation", "FP8", "FP4"), ("_C", "_C_stable_libtorch")),
    (("experts",), ("_moe_C", "_moe_C_stable_libtorch")),
    (("attention FLASH_ATTN",), ("vllm_flash_attn/_vllm_fa?_C",)),
    (("attention FLASHMLA",), ("_flashmla_C", "_flashmla_extension_C")),
)
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")


@dataclass
class Parts:
    """The parts that the recipes of one environment need, and their results.

    Attributes:
        version: vLLM's own version.
        wanted_parts: Part and a recipe's own variables → the recipes that need it so.
        differences: Part → the difference of its kernel from PyTorch, as a share.
        silent_parts: One line for each thing that could not be asked here.
        faults: One line for each part that is missing.
        wrong: One line for each part whose kernel fails, or differs from PyTorch.
    """

    version: str
    wanted_parts: dict[tuple[str, tuple[tuple[str, str], ...]], list[str]] = field(
        default_factory=dict
    )
    differences: dict[str, float] = field(default_factory=dict)
    silent_parts: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def add_recipe(self, recipe: str, form: Mapping[str, Any], config: Any) -> None:
        """Add the parts of a recipe, in the form that runs on this engine."""
        variables = form["environment"]
        own = {name: text for name, text in variables.items() if name.startswith(VLLM.prefixes)}
        for part in VLLM.recipe_kernels(form["argv"], own, checkpoint_traits(config)):
            self.wanted_parts.setdefault((part, tuple(sorted(own.items()))), []).append(recipe)

    def load(self, package: Path) -> None:
        """Import every compiled extension of the package that a wanted part calls."""
        shipped_modules = [
            path.relative_to(package).as_posix().partition(".")[0] for path in package.rglob("*.so")
        ]
        for names, patterns in EXTENSIONS:
            users = [part for part, _ in self.wanted_parts if part.startswith(names)]
            modules = sorted(
                {name for pattern in patterns for name in fnmatch.filter(shipped_modules, pattern)}
            )
            if users and not modules:
                self.faults += self._part_faults(
                    users, f"it has no compiled part {' or '.join(patterns)}"
                )
            for name in modules if users else ():
                try:
                    importlib.import_module(f"{package.name}.{name.replace('/', '.')}")
                except Exception as error:
                    why = f"{name} cannot be loaded: {kernel_self_test.error_line(error)}"
                    # The driver's own library, which a machine without a GPU lacks.
                    if "libcuda.so" in why:
                        self.silent_parts.append(why)
                    else:
                        self.faults += self._part_faults(users, why)

    def run_kernels(
        self, why_not: str | None, kernel: kernel_self_test.Kernel = kernel_self_test.compare_kernel
    ) -> None:
        """Run the kernel of every wanted part; `why_not` says why no kernel can run here."""
        if why_not:
            names = dict.fromkeys(part for part, _ in self.wanted_parts)
            self.silent_parts += [f"{why_not}: {', '.join(names)}"] if names else []
            return
        for part, recipes, outcome in self._outcomes(kernel):
            if isinstance(outcome, float):
                self.differences[part] = max(outcome, self.differences.get(part, 0.0))
            elif isinstance(outcome, engines.EngineUnavailable):
                self.silent_parts.append(f"{part}: {outcome}")
            else:
                self.wrong += self._part_faults([part], outcome, recipes)

    def _outcomes(
        self, kernel: kernel_self_test.Kernel
    ) -> Iterator[tuple[str, list[str], float | str | engines.EngineUnavailable]]:
        """Yield each wanted part, its recipes and its kernel's result.

        Kernels run in a process that is replaced after each failure: CUDA recovers from nothing.
        """
        pool: ProcessPoolExecutor | None = None
        for (part, environment), recipes in self.wanted_parts.items():
            pool = pool or ProcessPoolExecutor(1, get_context("spawn"))
            outcome: float | str | engines.EngineUnavailable
            try:
                outcome = pool.submit(kernel, part, dict(environment), VLLM.prefixes).result()
            except engines.EngineUnavailable as reason:
                outcome = reason
            except BrokenProcessPool:
                outcome = "its kernel ended the process"
            if not isinstance(outcome, float):
                pool.shutdown()
                pool = None
            yield part, recipes, outcome
        if pool:
            pool.shutdown()

    def _part_faults(
        self, parts: Iterable[str], description: str, recipes: Iterable[str] = ()
    ) -> tuple[str, ...]:
        every = ((part, name) for (part, _), names in self.wanted_parts.items() for name in names)
        users = recipes or [name for part, name in every if part in parts]
        return (
            f"recipe {', '.join(dict.fromkeys(users))}: vLLM {self.version}, "
            f"{', '.join(dict.fromkeys(parts))}: {description}",
        )


def checkpoint_traits(config: Any) -> frozenset[str]:
    """Return traits of a checkpoint's configuration: "experts", and the widths "FP8", "FP4"."""
    names: set[str] = set()
    for part in (config, getattr(config, "text_config", None)):
        if any(getattr(part, key, None) for key in _EXPERTS):
            names.add("experts")
        names |= set(_float_formats(getattr(part, "quantization_config", None)))
    return frozenset(names)


def _float_formats(width_value: Any) -> Iterator[str]:
    if isinstance(width_value, Mapping):
        if width_value.get("type") == "float" and width_value.get("num_bits") in (4, 8):
            yield f"FP{width_value['num_bits']}"
        for key, value in width_value.items():
            # The cache's format says nothing about the weights.
            if not str(key).startswith("kv_cache"):
                yield from _float_formats(value)
    elif isinstance(width_value, list | tuple):
        for value in width_value:
            yield from _float_formats(value)
    elif isinstance(width_value, str):
        yield from (width.upper() for width in ("fp8", "fp4") if width in width_value.lower())
