"""Known faults of a command line: memory share, address, speculation, flags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from lockstep.core.findings import Finding
from lockstep.models.known_models import Knowledge
from lockstep.onhost.engines import Engine
from lockstep.recipes import flags
from lockstep.recipes.command import AsWritten, environment, serve_command
from lockstep.recipes.placeholders import engine_of
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.sizing import Serving, read_back

# Article 002's refused start; see hardware.yaml for what starts at best.
KNOWN_BAD_UTILIZATION = 0.9
# Article 003, known issues: "incompatible with NVFP4 / compressed-tensors quantized models".
WITHOUT_TENSORIZER = ("nvfp4", "compressed-tensors")
PUBLIC = ("0.0.0.0", "::", "[::]", "*")
# What only an answer in words has a use for.
_OF_CHAT = ("reasoning_parser", "tool_call_parser", "enable_auto_tool_choice")
# How weights of 4 bits with activations of 16 are called that Marlin's kernels compute with.
_W4A16 = ("mxfp4", "w4a16", "int4", "awq", "gptq", "autoround", "auto-round")
_MOVING = ("latest", "nightly", "main", "dev")


@dataclass(frozen=True)
class Case:
    """One recipe with what the inventory sets.

    Attributes:
        recipe: The recipe.
        knowledge: Models and machines of the catalogue.
        argv: Its command line, on an executor of its own choice: a cluster replaces that.
        asked: What that command line asks for.
        version: The engine that will run it, None where it is not known.
        hosts: Sparks of its cluster; 1 without one.
    """

    recipe: Recipe
    knowledge: Knowledge
    argv: tuple[str, ...]
    asked: Serving
    version: str | None
    hosts: int

    @property
    def engine(self) -> Engine:
        """The recipe's engine."""
        return engine_of(self.recipe)

    @property
    def release(self) -> Version | None:
        """The release that `version` belongs to ("0.19.2rc1.dev7+gabc" → 0.19.2), if known."""
        try:
            return Version(Version(self.version or "").base_version)
        except InvalidVersion:
            return None

    def find(self, code: str, message: str, remedy: str) -> Finding:
        """A warning about the recipe."""
        return Finding(code, "warning", self.recipe.name, message, remedy)

    def error(self, code: str, message: str, remedy: str) -> Finding:
        """A finding that stops a deploy."""
        return Finding(code, "error", self.recipe.name, message, remedy)


def case_of(
    recipe: Recipe,
    knowledge: Knowledge,
    overrides: Mapping[str, object],
    version: str | None = None,
    hosts: int = 1,
) -> Case:
    """What the checks look at.

    Raises:
        RecipeError: the command line cannot be built.
    """
    own = {key: value for key, value in overrides.items() if key != "distributed_executor_backend"}
    argv = serve_command(recipe, overrides=own)
    asked = read_back(recipe, argv, version)
    return Case(recipe, knowledge, argv, asked, version, hosts)


def command_findings(case: Case) -> Iterator[Finding]:
    """Every finding that needs the recipe's command line or environment.

    Raises:
        RecipeError: the environment cannot be built.
    """
    for part in (
        *(_memory, _network, _kind, _speculation, _corrupting, _vision, _loading, _engine),
    ):
        yield from part(case)


def _memory(case: Case) -> Iterator[Finding]:
    highest = case.knowledge.hardware["dgx-spark"].gib("highest_utilization")
    remedy = f"Set gpu_memory_utilization to {highest} or less."
    share = case.asked.utilization
    if case.engine.share and share is None and case.asked.kv_gib is None:
        yield case.find("utilization-unset", "the engine takes its own share of memory", remedy)
    elif share is not None and share >= KNOWN_BAD_UTILIZATION:
        yield case.error(
            "utilization-too-high",
            f"gpu_memory_utilization {share} on unified memory: the system needs its part",
            remedy,
        )
    elif share is not None and share > highest:
        yield case.find(
            "utilization-high",
            f"gpu_memory_utilization {share}: starts above {highest} are known to fail",
            remedy,
        )


def _network(case: Case) -> Iterator[Finding]:
    if case.asked.host in PUBLIC or (case.asked.host is None and case.engine.public):
        where = case.asked.host or "no --host, which means all"
        yield case.find(
            "public-address",
            f"the API listens on every address ({where})",
            "Set host to 127.0.0.1.",
        )
    if flags.find(case.argv, ("--api-key",)):
        yield case.error(
            "secret-on-command-line",
            "--api-key shows its secret in the process list and in the unit",
            "Remove it; the engine listens on loopback only.",
        )


def _kind(case: Case) -> Iterator[Finding]:
    kind, name = case.asked.kind, case.recipe.model.lower()
    named = "rerank" if "rerank" in name else "embedding" if "embed" in name else kind
    if named != kind and case.recipe.lockstep.kind is None:
        yield case.find(
            "kind-unsure",
            f"the model's name says {named}, and the command line {kind}: a model is asked for "
            "what its command line says, and is never hot where it does not give that",
            f"Set lockstep.kind to {named}, or to {kind}.",
        )
    if kind == "chat":
        return
    idle = [key for key in _OF_CHAT if case.engine.has(case.argv, key)]
    if case.asked.speculative:
        idle.append("a draft")
    if idle:
        yield case.find(
            "kind-unused",
            f"{', '.join(idle)}: nothing is generated where the kind is {kind}",
            "Remove it from the command.",
        )


def _speculation(case: Case) -> Iterator[Finding]:
    family = case.knowledge.model(case.recipe.model).family
    tokens = case.asked.draft_tokens or 0
    if case.asked.speculative == "dflash" and tokens >= 6 and family == "qwen3.6-35b-a3b":
        yield case.find(
            "draft-too-long",
            f"DFlash k={tokens}: on this model k=6 ran at 26 tok/s against 70 with k=3",
            "Set num_speculative_tokens to 3.",
        )
    tag = case.recipe.container.rpartition(":")[2]
    moving = "@" not in case.recipe.container and any(mark in tag for mark in _MOVING)
    method = case.asked.speculative or ""
    if moving and (seen := case.engine.unsteady.get(method)):
        yield case.find(
            f"{method}-on-moving-tag",
            f"{method.upper()} on the moving tag {tag!r}: {seen}",
            f"Pin the image by digest, measure, and keep the recipe without {method.upper()} "
            "as fallback.",
        )
    yield from _mtp(case)


def _corrupting(case: Case) -> Iterator[Finding]:
    """Combinations that were reported as fast, healthy and wrong now and then.

    A start's few questions (docs/sense.md) miss what is rare.
    """
    method = case.asked.speculative or ""
    tokens, seen = case.engine.corrupting_drafts.get(method, (None, ""))
    if seen and case.asked.draft_tokens in (None, tokens):
        shown = f"{tokens} draft tokens" if case.asked.draft_tokens else "no number of draft tokens"
        yield case.find(
            "draft-corrupts",
            f"{method.upper()} with {shown}: {seen}",
            "Set speculative_num_draft_tokens to another number, and compare the answers.",
        )
    stored = case.knowledge.model(case.recipe.model).quantisation
    stored = str(stored or case.recipe.metadata.get("quantization") or "").lower()
    if not any(name in stored for name in _W4A16):
        return
    for (flag, value), seen in case.engine.corrupting_w4a16.items():
        if flags.value_of(case.argv, (flag,)) == value:
            yield case.find(
                "kernels-corrupt",
                f"{flag} {value} with {stored} weights: {seen}",
                f"Choose other kernels by {flag}, and compare the answers.",
            )


def _mtp(case: Case) -> Iterator[Finding]:
    guard, config = case.engine.guard, case.engine.draft_config
    if case.asked.speculative != "mtp" or guard is None or not config:
        return
    if flags.value_of(case.argv, (guard.flag,)) != guard.quantised:
        return
    text = flags.value_of(case.argv, config) or "{}"
    if guard.draft_key not in flags.json_value(config[0], text):
        yield case.find(
            "mtp-inherits-backend",
            f"the MTP head inherits {guard.flag} {guard.quantised}, which unquantised experts "
            "refuse",
            f'If the head is not quantised, add "{guard.draft_key}":"{guard.unquantised}" to '
            "speculative_config.",
        )


def _vision(case: Case) -> Iterator[Finding]:
    claimed = case.recipe.lockstep.vision
    stored = case.knowledge.model(case.recipe.model).vision
    text_only = flags.find(case.argv, ("--language-model-only",)) is not None
    if claimed and text_only:
        yield case.error(
            "vision-contradiction",
            "the recipe claims vision and passes --language-model-only",
            "Remove one of the two.",
        )
    if claimed and stored is False:
        yield case.error(
            "vision-contradiction",
            "the recipe claims vision, and the checkpoint holds no vision tensors",
            "Set lockstep.vision to false, or choose another quantisation.",
        )
    if text_only and stored:
        yield case.find(
            "vision-unused",
            "--language-model-only, and the checkpoint holds a vision tower",
            "Remove the flag and add --mm-processor-cache-type shm to read images.",
        )


def _loading(case: Case) -> Iterator[Finding]:
    stored = case.knowledge.model(case.recipe.model).quantisation
    stored = str(stored or case.recipe.metadata.get("quantization") or "").lower()
    if flags.value_of(case.argv, ("--load-format",)) != "tensorizer":
        return
    if any(method in stored for method in WITHOUT_TENSORIZER):
        yield case.error(
            "tensorizer-quantised",
            f"--load-format tensorizer cannot load {stored} weights",
            "Set load_format to fastsafetensors, or leave it out.",
        )


def _engine(case: Case) -> Iterator[Finding]:
    variables = environment(case.recipe, control=AsWritten())
    yield from _freezing(case, variables)
    if case.engine.guard and case.recipe.lockstep.moe is None:
        yield case.find(
            "guard-unknown",
            "it is not stated whether the model is a mixture of experts, so the freeze guard "
            "is not given as a flag",
            "Set lockstep.moe to true or false.",
        )
    known, wanted = case.release, case.recipe.lockstep.engine_versions
    if known and wanted and not SpecifierSet(wanted).contains(known, prereleases=True):
        yield case.error(
            "engine-version",
            f"the flags are right for {case.engine.name} {wanted}; pinned is {case.version}",
            "Pin an engine of that range, or check the flags and widen engine_versions.",
        )


def _freezing(case: Case, variables: Mapping[str, str]) -> Iterator[Finding]:
    guard = case.engine.guard
    if guard is None:
        return
    backend = flags.value_of(case.argv, (guard.flag,))
    if backend in guard.freezing or (backend is None and case.recipe.lockstep.moe):
        yield case.find(
            "freezing-backend",
            f"{guard.flag} {backend or 'left out'} leads to FlashInfer's MoE kernels, which were "
            "seen to freeze a Spark",
            f"Say nothing of {guard.flag}: Lockstep gives the right value.",
        )
    if variables.get(guard.variable) == guard.freezing_value:
        yield case.error(
            "freezing-backend",
            f"{guard.variable}={guard.freezing_value} freezes a Spark",
            "Remove it, and set lockstep.moe, so that the freeze guard is given as a flag.",
        )
