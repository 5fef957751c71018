"""The parts of an installed vLLM that its recipes will use: compiled extensions and kernels.

Without a GPU the extensions are loaded as far as that needs none; with one, each part runs a small
kernel beside PyTorch (`engine_kernels`).
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
from lockstep.onhost.environment import engine_kernels

VLLM = engines.ENGINES["vllm"]
#: What a process with CUDA, PyTorch and vLLM takes on a Spark (2.7 GiB), and room for the rest.
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
    """What the recipes of one environment need, and what became of it.

    Attributes:
        version: What vLLM calls itself.
        wanted: Part and a recipe's own variables → the recipes that need it so.
        agreed: Part → how far its kernel was from PyTorch, as a share.
        unasked: One line for each thing that could not be asked here.
        faults: One line for each part that is missing.
        wrong: One line for each part whose kernel fails, or differs from PyTorch.
    """

    version: str
    wanted: dict[tuple[str, tuple[tuple[str, str], ...]], list[str]] = field(default_factory=dict)
    agreed: dict[str, float] = field(default_factory=dict)
    unasked: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def want(self, recipe: str, form: Mapping[str, Any], config: Any) -> None:
        """Add the parts of a recipe, in the form that runs on this engine."""
        variables = form["environment"]
        own = {name: text for name, text in variables.items() if name.startswith(VLLM.prefixes)}
        for part in VLLM.parts(form["argv"], own, traits(config)):
            self.wanted.setdefault((part, tuple(sorted(own.items()))), []).append(recipe)

    def load(self, package: Path) -> None:
        """Import every compiled extension of the package that a wanted part calls."""
        shipped = [
            path.relative_to(package).as_posix().partition(".")[0] for path in package.rglob("*.so")
        ]
        for names, patterns in EXTENSIONS:
            users = [part for part, _ in self.wanted if part.startswith(names)]
            found = sorted({name for one in patterns for name in fnmatch.filter(shipped, one)})
            if users and not found:
                self.faults += self._told(users, f"it has no compiled part {' or '.join(patterns)}")
            for name in found if users else ():
                try:
                    importlib.import_module(f"{package.name}.{name.replace('/', '.')}")
                except Exception as error:
                    why = f"{name} cannot be loaded: {engine_kernels.first_line(error)}"
                    # The driver's own library, which a machine without a GPU has not.
                    if "libcuda.so" in why:
                        self.unasked.append(why)
                    else:
                        self.faults += self._told(users, why)

    def run(self, why_not: str | None, kernel: engine_kernels.Kernel = engine_kernels.run) -> None:
        """Run the kernel of every wanted part; `why_not` says why no kernel can run here."""
        if why_not:
            names = dict.fromkeys(part for part, _ in self.wanted)
            self.unasked += [f"{why_not}: {', '.join(names)}"] if names else []
            return
        for part, recipes, said in self._outcomes(kernel):
            if isinstance(said, float):
                self.agreed[part] = max(said, self.agreed.get(part, 0.0))
            elif said.startswith(engine_kernels.UNASKED):
                self.unasked.append(f"{part}: {said.removeprefix(engine_kernels.UNASKED)}")
            else:
                self.wrong += self._told([part], said, recipes)

    def _outcomes(
        self, kernel: engine_kernels.Kernel
    ) -> Iterator[tuple[str, list[str], float | str]]:
        """Each wanted part with its recipes, and what its kernel gave, as `engine_kernels.run`.

        Kernels have a process, and another one after each that failed: CUDA recovers from nothing.
        """
        pool: ProcessPoolExecutor | None = None
        for (part, environment), recipes in self.wanted.items():
            pool = pool or ProcessPoolExecutor(1, get_context("spawn"))
            said: float | str
            try:
                said = pool.submit(kernel, part, dict(environment), VLLM.prefixes).result()
            except BrokenProcessPool:
                said = "its kernel ended the process"
            if not isinstance(said, float):
                pool.shutdown()
                pool = None
            yield part, recipes, said
        if pool:
            pool.shutdown()

    def _told(
        self, parts: Iterable[str], what: str, recipes: Iterable[str] = ()
    ) -> tuple[str, ...]:
        every = ((part, name) for (part, _), names in self.wanted.items() for name in names)
        users = recipes or [name for part, name in every if part in parts]
        return (
            f"recipe {', '.join(dict.fromkeys(users))}: vLLM {self.version}, "
            f"{', '.join(dict.fromkeys(parts))}: {what}",
        )


def traits(config: Any) -> frozenset[str]:
    """Of a checkpoint's configuration: "experts", and the widths of its weights "FP8", "FP4"."""
    found: set[str] = set()
    for part in (config, getattr(config, "text_config", None)):
        if any(getattr(part, key, None) for key in _EXPERTS):
            found.add("experts")
        found |= set(_widths(getattr(part, "quantization_config", None)))
    return frozenset(found)


def _widths(said: Any) -> Iterator[str]:
    if isinstance(said, Mapping):
        if said.get("type") == "float" and said.get("num_bits") in (4, 8):
            yield f"FP{said['num_bits']}"
        for key, value in said.items():
            # How the cache is stored says nothing about the weights.
            if not str(key).startswith("kv_cache"):
                yield from _widths(value)
    elif isinstance(said, list | tuple):
        for value in said:
            yield from _widths(value)
    elif isinstance(said, str):
        yield from (width.upper() for width in ("fp8", "fp4") if width in said.lower())
