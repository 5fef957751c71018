"""Known faults of a command line: memory share, address, speculation, flags."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from lockstep.checkpoints.known_checkpoints import USUAL, Knowledge, KnownCheckpoint
from lockstep.checkpoints.quantisation import scheme_of
from lockstep.core.findings import Finding
from lockstep.fit.fit import UNSAID, Minimums, checkpoint_of
from lockstep.onhost.engine.foreign_engines import engine_start_index
from lockstep.onhost.engines import Engine
from lockstep.recipes import flags, secret_values
from lockstep.recipes.command import AsWritten, environment, serve_command
from lockstep.recipes.draft import draft_of, named_draft
from lockstep.recipes.placeholders import engine_of
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.sizing import Serving, read_back

# Article 002 saw a start refused at this share; hardware.yaml has what starts at best.
KNOWN_BAD_UTILIZATION = 0.9
# Article 003, known issues: "incompatible with NVFP4 / compressed-tensors quantized models".
WITHOUT_TENSORIZER = ("nvfp4", "compressed-tensors")
PUBLIC = ("0.0.0.0", "::", "[::]", "*")
_SHELLS = ("sh", "bash", "dash")
# Flags that only a model that answers in words has a use for.
_OF_CHAT = ("reasoning_parser", "tool_call_parser", "enable_auto_tool_choice")
# Weights of 4 bits with activations of 16 that Marlin's kernels compute with.
_W4A16 = ("mxfp4", "int4")
# GiB that recipes of the catalogue ask for; sparkrun's own default is 10.24 GB. Engines do not fill
# that much, so more is meant for data.
_SHARED_GIB = 16
# "v0.5.15.post1-cu130", as vLLM, SGLang and others tag a release.
_RELEASE = re.compile(r"v(\d+(?:\.\d+)+(?:\.post\d+|rc\d+)?)(?:-|$)")
# Keys whose value is a file, a folder, or a repository that the engine looks up.
_CONTENT = ("draft_model", "tokenizer", "tokenizer_path", "hf_config_path")
# The same, for flags that only some engines have.
_FILES = ("model_url", "mmproj", "mmproj_url", "lora")
_MOVING = ("latest", "nightly", "main", "dev")


@dataclass(frozen=True)
class CommandCase:
    """A recipe with what the inventory sets.

    Attributes:
        overrides: Values that the inventory sets (bind address, port, share …).
        version: Version of the engine that will run it, None where it is not known.
        hosts: Number of Sparks in its cluster; 1 without a cluster.
        machine: The kind of host, by its name in ``hardware.yaml``.
        minimums: Least MemAvailable while it loads and while it is hot, from the inventory.
        entrypoint: Words that its image starts before a command, by the lock; None if not known.
    """

    recipe: Recipe
    knowledge: Knowledge
    overrides: Mapping[str, object]
    version: str | None = None
    hosts: int = 1
    machine: str = USUAL
    minimums: Minimums = UNSAID
    entrypoint: Sequence[str] | None = None

    @cached_property
    def argv(self) -> tuple[str, ...]:
        """The command line with the executor of the recipe's choice; a cluster replaces that one.

        RecipeError where the command line cannot be built.
        """
        own = {k: v for k, v in self.overrides.items() if k != "distributed_executor_backend"}
        return serve_command(self.recipe, overrides=own)

    @cached_property
    def variables(self) -> dict[str, str]:
        """The environment; values that only a start knows stand as they are written.

        RecipeError where a value has no meaning.
        """
        return environment(self.recipe, control=AsWritten(), overrides=self.overrides)

    @cached_property
    def serving(self) -> Serving:
        """The settings that the command line asks for."""
        return read_back(self.recipe, self.argv, self.version)

    @property
    def model(self) -> KnownCheckpoint:
        """The known facts of the checkpoint."""
        return checkpoint_of(self.recipe, self.knowledge)

    @property
    def quantisation(self) -> str:
        """The format of the weights in lower case; "" where neither catalogue nor recipe has it."""
        return (self.model.quantisation or "").lower()

    @property
    def engine(self) -> Engine:
        """The recipe's engine."""
        return engine_of(self.recipe)

    @property
    def tag(self) -> str:
        """The tag of the image; "" where the image has none."""
        name = self.recipe.container.partition("@")[0].rpartition("/")[2]
        return name.partition(":")[2]

    @property
    def known_version(self) -> str:
        """The `version`, else the release that the image's tag names; "" where neither is known."""
        match = _RELEASE.match(self.tag)
        return self.version or (match[1] if match else "")

    @property
    def release(self) -> Version | None:
        """The release of that version ("0.19.2rc1.dev7+gabc" → 0.19.2), if known."""
        try:
            return Version(Version(self.known_version).base_version)
        except InvalidVersion:
            return None

    def warning(self, code: str, message: str, remedy: str) -> Finding:
        """Return a finding that does not stop a deploy."""
        return Finding(code, "warning", self.recipe.name, message, remedy)

    def error(self, code: str, message: str, remedy: str) -> Finding:
        """Return a finding that stops a deploy."""
        return Finding(code, "error", self.recipe.name, message, remedy)


def command_findings(case: CommandCase) -> Iterator[Finding]:
    """Yield the findings that need the command line or environment; RecipeError for none."""
    for part in (
        _entry,
        _memory,
        _host_memory,
        _network,
        _kind,
        _speculation,
        _corrupting,
        _vision,
        _engine,
        _freezing,
        _content,
    ):
        yield from part(case)


def _entry(case: CommandCase) -> Iterator[Finding]:
    """Yield a finding where the image's entry point takes the command for its own arguments.

    A wrapper, such as NVIDIA's or `tini --`, starts the command that it is given, and stays.
    """
    name = case.recipe.container.partition("@")[0]
    own = case.recipe.executor_config.get("entrypoint")
    words: tuple[str, ...] = (str(own),)
    where = "executor_config.entrypoint is"
    if own is None:
        entry_words = case.engine.entry_points.get(re.sub(r"^docker\.io/|:[^/]*$", "", name), ())
        words = entry_words if case.entrypoint is None else tuple(case.entrypoint)
        where = f"the entry point of {name} is"
    ways = (*case.engine.entries, *case.engine.older_entries)
    last = PurePosixPath(words[-1]).name if words else ""
    starts = any(engine_start_index(words, way) is not None for way in ways)
    is_starter = last in {*(way[0] for way in ways), *_SHELLS}
    in_shell = "-c" in words[-2:] and "$@" not in words[-1]
    if starts or is_starter or in_shell:
        yield case.error(
            "entry-point",
            f"{where} {shlex.join(words)!r}, and what is run is that before the whole command, "
            f"{shlex.join(case.argv[:2])!r} …",
            'Add `entrypoint: ""` under executor_config: the command is whole.',
        )


def _memory(case: CommandCase) -> Iterator[Finding]:
    share = case.serving.utilization
    highest = case.knowledge.hardware[case.machine].gib("highest_utilization")
    remedy = f"Set gpu_memory_utilization to {highest} or less."
    if case.engine.share and share is None and case.serving.kv_gib is None:
        yield case.warning("utilization-unset", "the engine takes its own share of memory", remedy)
    elif share is not None and share >= KNOWN_BAD_UTILIZATION:
        yield case.error(
            "utilization-too-high",
            f"gpu_memory_utilization {share} on unified memory: the system needs its part",
            remedy,
        )
    elif share is not None and share > highest:
        yield case.warning(
            "utilization-high",
            f"gpu_memory_utilization {share}: starts above {highest} are known to fail",
            remedy,
        )


def _host_memory(case: CommandCase) -> Iterator[Finding]:
    """Yield a finding for flags, variables and settings that take memory of the host.

    On a Spark that is the same memory as the GPU's.
    """
    kinds = {
        f"{name} {_hide(name, value)}".strip(): kind.content
        # The first kind that knows a flag describes it best.
        for kind in reversed(case.engine.host_memory)
        for name, value in kind.refused_memory_settings(case.argv, case.variables)
    }
    options = [f"{option} ({description})" for option, description in kinds.items()]
    shared_memory = case.recipe.executor_config.get("shm_size")
    if shared_memory is not None and _gib(str(shared_memory)) > _SHARED_GIB:
        options.append(
            f"executor_config.shm_size {shared_memory} (more than engines use themselves)"
        )
    if options:
        yield case.error(
            "host-offload",
            f"{'; '.join(options)}: the host's memory is the same memory as the GPU's, and nothing "
            "counts it",
            "Remove it, and give the engine that memory as its share: gpu_memory_utilization, or "
            f"shm_size of {_SHARED_GIB} GB or less.",
        )


def _hide(name: str, value: str) -> str:
    """Return a value without its secrets; "…" for JSON, also where a shell took its quotes."""
    if value[:1] in ("{", "["):
        return "…"
    return secret_values.hide(value, secret_values.of_variables({name: value}))[:60]


def _gib(size: str) -> float:
    """Return a size as Docker reads it ("16gb", "64g", "65536m", bytes) in GiB; 0 for none."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kmgt]?)i?b?", size.strip().lower())
    if match is None:
        return 0.0
    return float(match[1]) * 1024.0 ** ("bkmgt".index(match[2] or "b") - 3)


def _network(case: CommandCase) -> Iterator[Finding]:
    if case.serving.host in PUBLIC or (case.serving.host is None and case.engine.public):
        where = case.serving.host or "no --host, which means all"
        yield case.warning(
            "public-address",
            f"the API listens on every address ({where})",
            "Set host to 127.0.0.1.",
        )
    visible_secrets = [*secret_values.of_command(case.argv)]
    visible_secrets += secret_values.of_variables(case.variables)
    if names := sorted({name for name, _ in visible_secrets}):
        yield case.error(
            "secret-on-command-line",
            f"{', '.join(names)}: everybody on the host can read it, in the process list, in the "
            "unit and in `docker inspect`",
            "Remove it: the engine listens on loopback only, and its weights are fetched before, "
            "with the token of the inventory.",
        )


def _kind(case: CommandCase) -> Iterator[Finding]:
    kind, name = case.serving.kind, case.recipe.model.lower()
    kind_by_name = "rerank" if "rerank" in name else "embedding" if "embed" in name else kind
    if kind_by_name != kind and case.recipe.lockstep.kind is None:
        yield case.warning(
            "kind-unsure",
            f"the model's name says {kind_by_name}, and the command line {kind}: a model is "
            "asked for "
            "what its command line says, and is never hot where it does not give that",
            f"Set lockstep.kind to {kind_by_name}, or to {kind}.",
        )
    if kind == "chat":
        return
    idle = [key for key in _OF_CHAT if case.engine.has(case.argv, key)]
    if case.serving.speculative:
        idle.append("a draft")
    if idle:
        yield case.warning(
            "kind-unused",
            f"{', '.join(idle)}: nothing is generated where the kind is {kind}",
            "Remove it from the command.",
        )


def _speculation(case: CommandCase) -> Iterator[Finding]:
    method, tokens = case.serving.speculative or "", case.serving.draft_tokens or 0
    if method == "dflash" and tokens >= 6 and case.model.family == "qwen3.6-35b-a3b":
        yield case.warning(
            "draft-too-long",
            f"DFlash k={tokens}: on this model k=6 ran at 26 tok/s against 70 with k=3",
            "Set num_speculative_tokens to 3.",
        )
    tag = case.tag
    moving = "@" not in case.recipe.container and any(mark in tag for mark in _MOVING)
    if moving and (report := case.engine.unsteady.get(method)):
        yield case.warning(
            f"{method}-on-moving-tag",
            f"{method.upper()} on the moving tag {tag!r}: {report}",
            f"Pin the image by digest, measure, and keep the recipe without {method.upper()} "
            "as fallback.",
        )
    guard, config = case.engine.guard, case.engine.draft_config
    if method != "mtp" or guard is None or not config:
        return
    drafting = flags.json_value(config[0], flags.value_of(case.argv, config) or "{}")
    backend = flags.value_of(case.argv, (guard.flag,))
    if backend == guard.quantised_value and guard.draft_key not in drafting:
        yield case.warning(
            "mtp-inherits-backend",
            f"the MTP head inherits {guard.flag} {guard.quantised_value}, which unquantised "
            "experts "
            "refuse",
            f'If the head is not quantised, add "{guard.draft_key}":"{guard.unquantised_value}" to '
            "speculative_config.",
        )


def _corrupting(case: CommandCase) -> Iterator[Finding]:
    """Yield findings for combinations that were reported as fast, healthy and sometimes wrong.

    The few questions of a start (docs/sense.md) miss a fault that is rare.
    """
    method = case.serving.speculative or ""
    tokens, report = case.engine.corrupting_drafts.get(method, (None, ""))
    if report and case.serving.draft_tokens in (None, tokens):
        tokens_text = (
            f"{tokens} draft tokens" if case.serving.draft_tokens else "no number of draft tokens"
        )
        yield case.warning(
            "draft-corrupts",
            f"{method.upper()} with {tokens_text}: {report}",
            "Set another number by speculative_num_draft_tokens, or by one less of "
            "speculative_dspark_block_size, and compare the answers.",
        )
    yield from _experts(case)
    if scheme_of(case.quantisation) not in _W4A16:
        return
    for (flag, value), report in case.engine.corrupting_w4a16.items():
        if flags.value_of(case.argv, (flag,)) == value:
            yield case.warning(
                "kernels-corrupt",
                f"{flag} {value} with {case.quantisation} weights: {report}",
                f"Choose other kernels by {flag}, and compare the answers.",
            )


def _experts(case: CommandCase) -> Iterator[Finding]:
    """Yield a finding for kernels of the engine's release that corrupt answers.

    An unknown release may have them.
    """
    stated_quantisation = flags.value_of(case.argv, case.engine.spellings("quantization")) or ""
    # Experts of ModelOpt are another class, whose kernels a flag chooses.
    is_other_format = "modelopt" in f"{case.quantisation} {stated_quantisation}"
    if not case.recipe.lockstep.moe or "nvfp4" not in case.quantisation or is_other_format:
        return
    for releases, report in case.engine.corrupting_experts.items():
        if case.release is None or case.release in SpecifierSet(releases):
            engine_text = f"{case.engine.title} {case.known_version or 'of an unknown release'}"
            yield case.warning(
                "kernels-corrupt",
                f"{engine_text} with experts in {case.quantisation} ({releases}): {report}",
                "Name an image of an earlier release, as the catalogue's recipes do, or serve the "
                "model on another engine.",
            )


def _vision(case: CommandCase) -> Iterator[Finding]:
    claimed_vision, stored_vision = case.recipe.lockstep.vision, case.model.vision
    text_only = flags.flag_span(case.argv, ("--language-model-only",)) is not None
    if claimed_vision and text_only:
        yield case.error(
            "vision-contradiction",
            "the recipe claims vision and passes --language-model-only",
            "Remove one of the two.",
        )
    if (
        claimed_vision
        and case.engine.weights == "file"
        and not case.engine.value(case.argv, "mmproj")
    ):
        if not case.engine.looks_for_mmproj(case.argv):
            yield case.error(
                "vision-contradiction",
                "the recipe claims vision and tells the engine to take no mmproj file",
                "Remove the flag, or set lockstep.vision to false.",
            )
        elif case.recipe.model.startswith("/"):
            yield case.error(
                "vision-contradiction",
                "the recipe claims vision, and names a file of the model and none that sees",
                "Add --mmproj with the full path of its mmproj file.",
            )
    if claimed_vision and stored_vision is False:
        yield case.error(
            "vision-contradiction",
            "the recipe claims vision, and the checkpoint holds no vision tensors",
            "Set lockstep.vision to false, or choose another quantisation.",
        )
    if text_only and stored_vision:
        yield case.warning(
            "vision-unused",
            "--language-model-only, and the checkpoint holds a vision tower",
            "Remove the flag and add --mm-processor-cache-type shm to read images.",
        )


def _engine(case: CommandCase) -> Iterator[Finding]:
    tensorizer = flags.value_of(case.argv, ("--load-format",)) == "tensorizer"
    if tensorizer and any(method in case.quantisation for method in WITHOUT_TENSORIZER):
        yield case.error(
            "tensorizer-quantised",
            f"--load-format tensorizer cannot load {case.quantisation} weights",
            "Set load_format to fastsafetensors, or leave it out.",
        )
    if case.engine.guard and case.recipe.lockstep.moe is None:
        yield _guard_unknown(case)
    known_release, wanted_releases = case.release, case.recipe.lockstep.engine_versions
    if (
        known_release
        and wanted_releases
        and not SpecifierSet(wanted_releases).contains(known_release, prereleases=True)
    ):
        yield case.error(
            "engine-version",
            f"the flags are right for {case.engine.name} {wanted_releases}; pinned is "
            f"{case.known_version}",
            "Pin an engine of that range, or check the flags and widen engine_versions.",
        )


def _guard_unknown(case: CommandCase) -> Finding:
    """Return the finding for a recipe that does not say whether its model has experts."""
    reason = "it is not stated whether the model is a mixture of experts, so the freeze guard"
    if case.recipe.model.startswith("/"):
        # The lock never reads the config.json of a folder on a Spark.
        return case.error(
            "guard-unknown",
            f"{reason} is not given as a flag, and a wrong kernel freezes the Spark",
            "Set lockstep.moe to true or false; the folder's config.json names experts or none.",
        )
    return case.warning(
        "guard-unknown",
        f"{reason} is not given as a flag; its config.json decides, once a lock has read it",
        "Run `lockstep lock`, or a deploy, which locks what is not yet locked. Where the model has "
        "no config.json, set lockstep.moe to true or false.",
    )


def _freezing(case: CommandCase) -> Iterator[Finding]:
    guard = case.engine.guard
    if guard is None:
        return
    backend = flags.value_of(case.argv, (guard.flag,))
    if backend in guard.freezing or (backend is None and case.recipe.lockstep.moe):
        yield case.warning(
            "freezing-backend",
            f"{guard.flag} {backend or 'left out'} leads to FlashInfer's MoE kernels, which were "
            "seen to freeze a Spark",
            f"Say nothing of {guard.flag}: Lockstep gives the right value.",
        )
    if case.variables.get(guard.variable) == guard.freezing_value:
        yield case.error(
            "freezing-backend",
            f"{guard.variable}={guard.freezing_value} freezes a Spark",
            "Remove it, and set lockstep.moe, so that the freeze guard is given as a flag.",
        )


def _content(case: CommandCase) -> Iterator[Finding]:
    """Yield repositories that the command names and no deploy fetches: engines start offline."""
    recipe, engine = case.recipe, case.engine
    repositories = [draft.model for draft in [draft_of(recipe)] if draft]
    repositories += [borrow.model for borrow in recipe.lockstep.borrow]
    keys = (*_CONTENT, *(key for key in _FILES if key in engine.flags))
    values = {key: flags.value_of(case.argv, engine.spellings(key)) for key in keys}
    values["draft_model"] = named_draft(engine, case.argv)[0]
    for key, name in values.items():
        if not name or name.startswith("/") or not ("/" in name or name.endswith(".gguf")):
            continue
        if name not in (recipe.model, recipe.repository, *repositories):
            yield case.error(
                "not-fetched",
                f"{key.replace('_', ' ')} {name} is in the command, and no deploy fetches it: the "
                "engine starts without the hub",
                "Name it in the recipe under lockstep.draft or lockstep.borrow, or give a full "
                "path.",
            )
