"""Known faults of a command line: memory share, address, speculation, flags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet

from lockstep.core.findings import Finding
from lockstep.fit import engine_version
from lockstep.fit.catalogue import Catalogue
from lockstep.onhost.engines import Engine
from lockstep.recipes import flags
from lockstep.recipes.command import environment, serve_command
from lockstep.recipes.placeholders import engine_of
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.sizing import Serving, read_back

# Article 002's refused start; see hardware.yaml for what starts at best.
KNOWN_BAD_UTILIZATION = 0.9
# Article 003, known issues: "incompatible with NVFP4 / compressed-tensors quantized models".
WITHOUT_TENSORIZER = ("nvfp4", "compressed-tensors")
PUBLIC = ("0.0.0.0", "::", "[::]", "*")
_MOVING = ("latest", "nightly", "main", "dev")


def command_findings(
    recipe: Recipe,
    catalogue: Catalogue,
    overrides: Mapping[str, object],
    engine_version: str | None,
) -> list[Finding]:
    """Every finding that needs the recipe's command line or environment.

    Raises:
        RecipeError: neither can be built.
    """
    return list(_Case(recipe, catalogue, overrides, engine_version).findings())


@dataclass(frozen=True)
class _Case:
    """One recipe with what the inventory sets."""

    recipe: Recipe
    catalogue: Catalogue
    overrides: Mapping[str, object]
    version: str | None

    @property
    def runs(self) -> Engine:
        return engine_of(self.recipe)

    def findings(self) -> Iterator[Finding]:
        argv = serve_command(self.recipe, overrides=self.overrides)
        asked = read_back(self.recipe, argv, self.runs)
        yield from self.memory(asked)
        yield from self.network(asked, argv)
        yield from self.speculation(asked, argv)
        yield from self.vision(argv)
        yield from self.loading(argv)
        yield from self.engine(argv)

    def find(self, code: str, message: str, remedy: str = "", error: bool = False) -> Finding:
        return Finding(code, "error" if error else "warning", self.recipe.name, message, remedy)

    def memory(self, asked: Serving) -> Iterator[Finding]:
        highest = self.catalogue.knowledge.hardware["dgx-spark"].gib("highest_utilization")
        remedy = f"Set gpu_memory_utilization to {highest} or less."
        share = asked.utilization
        if self.runs.share and share is None and asked.kv_gib is None:
            yield self.find("utilization-unset", "the engine takes its own share of memory", remedy)
        elif share is not None and share >= KNOWN_BAD_UTILIZATION:
            yield self.find(
                "utilization-too-high",
                f"gpu_memory_utilization {share} on unified memory: the system needs its part",
                remedy,
                error=True,
            )
        elif share is not None and share > highest:
            yield self.find(
                "utilization-high",
                f"gpu_memory_utilization {share}: starts above {highest} are known to fail",
                remedy,
            )

    def network(self, asked: Serving, argv: tuple[str, ...]) -> Iterator[Finding]:
        if asked.host in PUBLIC or (asked.host is None and self.runs.public):
            where = asked.host or "no --host, which means all"
            yield self.find(
                "public-address",
                f"the API listens on every address ({where})",
                "Set host to 127.0.0.1.",
            )
        if flags.find(argv, ("--api-key",)):
            yield self.find(
                "secret-on-command-line",
                "--api-key shows its secret in the process list and in the unit",
                "Remove it; the engine listens on loopback only.",
                error=True,
            )

    def speculation(self, asked: Serving, argv: tuple[str, ...]) -> Iterator[Finding]:
        family = self.catalogue.knowledge.model(self.recipe.model).family
        tokens = asked.draft_tokens or 0
        if asked.speculative == "dflash" and tokens >= 6 and family == "qwen3.6-35b-a3b":
            yield self.find(
                "draft-too-long",
                f"DFlash k={tokens}: on this model k=6 ran at 26 tok/s against 70 with k=3",
                "Set num_speculative_tokens to 3.",
            )
        tag = self.recipe.container.rpartition(":")[2]
        moving = "@" not in self.recipe.container and any(mark in tag for mark in _MOVING)
        method = asked.speculative or ""
        if moving and (seen := self.runs.unsteady.get(method)):
            yield self.find(
                f"{method}-on-moving-tag",
                f"{method.upper()} on the moving tag {tag!r}: {seen}",
                f"Pin the image by digest, measure, and keep the recipe without {method.upper()} "
                "as fallback.",
            )
        yield from self._mtp(asked, argv)

    def _mtp(self, asked: Serving, argv: tuple[str, ...]) -> Iterator[Finding]:
        guard, config = self.runs.guard, self.runs.draft_config
        if asked.speculative != "mtp" or guard is None or not config:
            return
        if flags.value_of(argv, (guard.flag,)) != guard.quantised:
            return
        text = flags.value_of(argv, config) or "{}"
        if guard.draft_key not in flags.json_value(config[0], text):
            yield self.find(
                "mtp-inherits-backend",
                f"the MTP head inherits {guard.flag} {guard.quantised}, which unquantised experts "
                "refuse",
                f'If the head is not quantised, add "{guard.draft_key}":"{guard.unquantised}" to '
                "speculative_config.",
            )

    def vision(self, argv: tuple[str, ...]) -> Iterator[Finding]:
        claimed = self.recipe.lockstep.vision
        stored = self.catalogue.knowledge.model(self.recipe.model).vision
        text_only = flags.find(argv, ("--language-model-only",)) is not None
        if claimed and text_only:
            yield self.find(
                "vision-contradiction",
                "the recipe claims vision and passes --language-model-only",
                "Remove one of the two.",
                error=True,
            )
        if claimed and stored is False:
            yield self.find(
                "vision-contradiction",
                "the recipe claims vision, and the checkpoint holds no vision tensors",
                "Set lockstep.vision to false, or choose another quantisation.",
                error=True,
            )
        if text_only and stored:
            yield self.find(
                "vision-unused",
                "--language-model-only, and the checkpoint holds a vision tower",
                "Remove the flag and add --mm-processor-cache-type shm to read images.",
            )

    def loading(self, argv: tuple[str, ...]) -> Iterator[Finding]:
        stored = self.catalogue.knowledge.model(self.recipe.model).quantisation
        stored = str(stored or self.recipe.metadata.get("quantization") or "").lower()
        if flags.value_of(argv, ("--load-format",)) != "tensorizer":
            return
        if any(method in stored for method in WITHOUT_TENSORIZER):
            yield self.find(
                "tensorizer-quantised",
                f"--load-format tensorizer cannot load {stored} weights",
                "Set load_format to fastsafetensors, or leave it out.",
                error=True,
            )

    def engine(self, argv: tuple[str, ...]) -> Iterator[Finding]:
        variables = environment(self.recipe, control=_Anything())
        yield from self._freezing(argv, variables)
        if self.runs.guard and self.recipe.lockstep.moe is None:
            yield self.find(
                "guard-unknown",
                "it is not stated whether the model is a mixture of experts, so the freeze guard "
                "is not given as a flag",
                "Set lockstep.moe to true or false.",
            )
        known, wanted = engine_version.release(self.version), self.recipe.lockstep.engine_versions
        if known and wanted and not SpecifierSet(wanted).contains(known, prereleases=True):
            yield self.find(
                "engine-version",
                f"the flags are right for {self.runs.name} {wanted}; pinned is {self.version}",
                "Pin an engine of that range, or check the flags and widen engine_versions.",
                error=True,
            )

    def _freezing(self, argv: tuple[str, ...], variables: Mapping[str, str]) -> Iterator[Finding]:
        guard = self.runs.guard
        if guard is None:
            return
        backend = flags.value_of(argv, (guard.flag,))
        if backend in guard.freezing:
            yield self.find(
                "freezing-backend",
                f"{guard.flag} {backend} leads to FlashInfer's MoE kernels, which were seen to "
                "freeze a Spark",
                f"Remove {guard.flag}: Lockstep gives the right one.",
            )
        if variables.get(guard.variable) == guard.freezing_value:
            yield self.find(
                "freezing-backend",
                f"{guard.variable}={guard.freezing_value} freezes a Spark",
                "Remove it, and set lockstep.moe, so that the freeze guard is given as a flag.",
                error=True,
            )


class _Anything(dict[str, str]):
    """Every variable is set: a check must not need the inventory's values."""

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: str) -> str:
        return ""
