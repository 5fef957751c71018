"""The interface of an engine; each engine's module implements it.

Both sides share it, so it uses the standard library only. Inside an image it runs on the image's
Python.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from subprocess import CompletedProcess
from typing import Any, Literal

from lockstep.onhost.core.memory_requirement import Need
from lockstep.onhost.core.request_kinds_and_refused_shapes import Kind, Shape
from lockstep.onhost.engines.command_line_flags import flag_span, is_flag, value_of
from lockstep.onhost.engines.engine_counters import Metrics
from lockstep.onhost.engines.engine_parser import (
    EngineUnavailable,
    ParsedCommand,
    recipe_environment,
    refusal,
)

#: Runs a command line with variables, somewhere.
Run = Callable[[Sequence[str], Mapping[str, str]], CompletedProcess[str]]
# Lines that PyTorch's loaders and uvicorn write, whichever engine runs them.
LOADING = (
    re.compile(r"oading .*checkpoint shards:\s+\d+% Completed \| (?P<done>\d+)/(?P<all>\d+)"),
    "loading weights, file {done} of {all}",
)
#: Logged if the driver must compile a kernel from an image whose CUDA is newer than the driver's:
#: that ends the engine while graphs are captured (vllm-project/vllm#47397, a Spark, 2026-07-02).
TOO_NEW = (
    re.compile(r"cudaErrorUnsupportedPtxVersion|PTX was compiled with an unsupported toolchain"),
    "a kernel cannot be compiled here: the image's CUDA is newer than the driver's",
)
CAPTURING = (re.compile(r"Captur\w+ .*?(?P<percent>\d+)%\|"), "capturing CUDA graphs, {percent} %")
OPEN = (re.compile(r"Application startup complete"), "port open")
# Files that vLLM and SGLang look for by `--load-format` (vLLM 0.32.0, SGLang 0.5.23; 2026-11-28).
_SAFETENSORS, _MISTRAL = ("*.safetensors",), ("consolidated*.safetensors",)
_HUGGING_FACE = (*_SAFETENSORS, "*.bin", "*.pt")
PATTERNS: Mapping[str, tuple[str, ...]] = {
    "auto": _HUGGING_FACE,
    "hf": _HUGGING_FACE,
    "bitsandbytes": _HUGGING_FACE,
    "dummy": _HUGGING_FACE,
    "safetensors": _SAFETENSORS,
    "fastsafetensors": _SAFETENSORS,
    "instanttensor": _SAFETENSORS,
    "runai_streamer": _SAFETENSORS,
    "mistral": _MISTRAL,
    "pt": ("*.pt",),
    "npcache": ("*.bin",),
}


@dataclass(frozen=True, kw_only=True)
class CommandGuard:
    """The way to keep an engine off the kernels that freeze a Spark.

    Attributes:
        flag: The flag that chooses the kernels of a mixture of experts, above everything else.
        quantised_value: Its value for experts that are stored quantised.
        unquantised_value: Its value for others.
        freezing: Values of it that lead to those kernels.
        draft_key: The same choice in `draft_config`, for the draft alone.
        variable: The variable that chose them before the flag existed; ignored beside the flag.
        freezing_value: Value of that variable that leads to those kernels.
    """

    flag: str
    quantised_value: str
    unquantised_value: str
    freezing: frozenset[str]
    draft_key: str
    variable: str
    freezing_value: str


@dataclass(frozen=True, kw_only=True)
class HostMemory:
    """Data that an engine keeps in the host's memory on request; on a Spark that is the GPU's own.

    Attributes:
        content: The kind of data.
        flags: A regular expression of the flags that request it, written with dashes.
        variables: The same of variables.
        unit_gib: GiB per unit of the flag's value, if it is counted. 0: the data is a second copy
            of data in memory, or grows without a bound, and is refused.
        usual_gib: GiB that are kept if nothing is requested.
        seen_gib: GiB of it that the overhead of `hardware.yaml` includes already.
    """

    content: str
    flags: str = ""
    variables: str = ""
    unit_gib: float = 0.0
    usual_gib: float = 0.0
    seen_gib: float = 0.0

    def requested_memory_settings(
        self, argv: Sequence[str], variables: Mapping[str, str]
    ) -> tuple[tuple[str, str], ...]:
        """Return (flag or variable, value) of each request, flags last, because they win."""
        pairs = [pair for pair in variables.items() if re.fullmatch(self.variables, pair[0])]
        for index, word in enumerate(argv):
            if not word.startswith("-"):
                continue
            flag, equals_sign, value = word.partition("=")
            if re.fullmatch(self.flags, flag):
                next_word = argv[index + 1] if index + 1 < len(argv) else ""
                # A flag alone means on.
                value = value if equals_sign else "" if is_flag(next_word) else next_word
                pairs.append((flag, value))
        return tuple(pairs)

    def requested_gib(self, argv: Sequence[str], variables: Mapping[str, str]) -> float:
        """Return its GiB beside the overhead; 0 if it is refused, or its value is no number."""
        kept_gib = self.usual_gib
        for _, value in self.requested_memory_settings(argv, variables):
            with contextlib.suppress(ValueError):
                kept_gib = float(value) * self.unit_gib
        return max(0.0, kept_gib - self.seen_gib)

    def refused_memory_settings(
        self, argv: Sequence[str], variables: Mapping[str, str]
    ) -> tuple[tuple[str, str], ...]:
        """Return the refused requests: any, or for counted data those without a bound."""
        return tuple(
            (name, value)
            for name, value in self.requested_memory_settings(argv, variables)
            if (value.startswith("-") if self.unit_gib else value.strip().lower() not in _OFF)
        )


_OFF = ("0", "0.0", "false", "no", "off", "none")

#: Caches of KV blocks that engines take as plug-ins.
CONNECTORS = HostMemory(
    content="a second copy of KV blocks",
    variables=(
        r"LMCACHE_(?:MAX_)?LOCAL_CPU(?:_SIZE)?|LMCACHE_CONFIG_FILE|MOONCAKE_\w*(?:SIZE|CONFIG_PATH)"
        r"|DYN_KVBM_CPU_CACHE_\w+|(?:FLEXKV|UCM|UNIFIED_CACHE)_\w*(?:CPU|DRAM|HOST|CONFIG)\w*"
    ),
)
#: Tables, layers and copies, by the usual names of engines' flags for them.
TABLES = HostMemory(
    content="tables or layers",
    flags=(
        r"--(?!no-)(?:[\w-]+-)?(?:cpu|host|dram)-(?:offload|backup|cache|pool|tables?|embeddings?)"
        r"(?:-gb|-gib|-size|-ratio)?"
        r"|--(?!no-)[\w-]*(?:ngram|engram|ple|embeddings?|tables?)-(?:offload|cpu|host|dram)[\w-]*"
        r"|--offload-(?:ngram|engram|ple|embeddings?|tables?)[\w-]*"
    ),
)


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes that decide the memory of an engine on one host, GiB.

    Attributes:
        share: Share of the memory that the recipe gives it (0 to 1), or None.
        kv_cache: KV cache that the recipe gives as a size, or None.
        weights: Weights, the draft's included; None if nobody published them.
        sequence: KV cache and state of one sequence.
        published: Memory that somebody saw it hold, or None.
        total: MemTotal of the machine.
        start: Memory that an engine's processes take before it looks how much is available.
        at_rest: Memory that it then finds available on a machine with nothing else to do.
        overhead: Memory beside weights and KV cache, in the better observed case.
        beyond: Memory that it takes beyond its share once it serves.
        host: Data that it is asked to keep in the host's memory beside all that.
    """

    share: float | None
    kv_cache: float | None
    weights: float | None
    sequence: float
    published_gib: float | None
    total: float
    start: float
    at_rest: float
    overhead: float
    beyond: float = 0.0
    host: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Engine:
    """One engine. The defaults are right for an engine that says nothing else.

    Attributes:
        name: In recipes, in the names of its files in the catalogue, and on a host.
        title: In sentences.
        entries: Commands that start it; the first is written if a recipe has no command.
        older_entries: Commands that started older releases of it.
        entry_points: Repository of images → their entry point, if that starts it already.
        runtimes: sparkrun's runtimes that drive it.
        hints: The start of a command → the runtime that it stands for.
        in_venv: Whether it runs in a venv of the host, too, not in an image only.
        usual: Whether a recipe that names no runtime means its first one.
        flags: Recipe key → spellings of its flag, the one that is written first; () for a key
            without a flag. Other keys are the flag of the same name with dashes.
        variables: Recipe key → variable that means the same as its flag; the flag wins.
        positional_model: Whether the model stands right after `entries`, without a flag.
        draft_config: Spellings of the flag whose JSON value describes the draft; () if each part
            has a flag of its own.
        dotted_flags: Whether `--flag.key value` is a key of the flag's JSON value.
        always: Flags without a value that Lockstep adds to every command line, unless the recipe
            or an override gives their key as false.
        weights: Its argument for the weights: their "id" on the hub, their "folder", or their
            first "file".
        hub_model: Spellings of the flag that makes it fetch a model itself; Lockstep removes it.
        shares_copies: A flag with which data parallelism splits the hosts of one copy.
        environment: Variables that it gets from Lockstep.
        prefixes: Prefixes of its own variables.
        guard: Its freeze guard; None if none is needed.
        public: Whether it listens on every address by default.
        unsteady: Method of drafting → observations of it on an image whose tag moves.
        corrupting_drafts: Method of drafting → the number of draft tokens, also the checkpoint's,
            with which answers were seen to be wrong now and then; and the observation.
        corrupting_w4a16: Flag and value → observations of these kernels with weights of 4 bits.
        corrupting_experts: Releases (a version specifier) → known faults of the kernels that they
            take on a Spark for experts in NVFP4 as compressed-tensors stores them, whatever the
            flags say.
        refused_shapes: Shapes of a conversation that it refuses whatever the chat template.
        keeps_states: First release known to keep the states of earlier prompts of a hybrid model
            by default; None: it always does.
        spans_hosts: First release that serves one model on several hosts without Ray; None: none.
        executor: Its own word for that, of `distributed_executor_backend`; None: it has none.
        spans_copies: Whether copies of a model, one on each host, are served as one.
        address_variable: The variable that tells a rank its own address, or None.
        share: Share of the memory that it takes if a recipe names none; 0: it knows no share.
        counts_overhead: Whether its overhead is inside its share, not beside it.
        pages: Whether all layers share a KV cache of pages of one size.
        window_step: Tokens of a step that it keeps beside each sliding window.
        latent_copies: Most times that one of its builds keeps the latent of MLA.
        latent_reason: Why builds differ in that.
        image_cache_gib: GiB of its share that it takes for images before the KV cache.
        on_python: Whether its parser is asked on its own Python; else the program itself is run.
        version_pages: Page of its API → key of its version there.
        each_step: Keys of a streamed request with which it sends an event at each step, also while
            a parser holds the text back; {}: it has none.
        logprobs_drafting: Whether it gives log-probabilities while it drafts.
        compiled: A regular expression of its log line that a request had to wait for the
            compilation of a kernel; "": it has no such line.
        metrics: Names on its Prometheus page.
        phases: Lines of its log → the phase of its start, first match wins. A line that matches
            nothing is no phase: a wrong guess would be worse than silence.
        host_memory: Data that it may be asked to keep in the host's memory.
        end_s: Seconds that it may take to end; then it is killed (`engine.exec_stop`). An idle vLLM
            took 0.4 to 0.7 s on one H200 (0.26, 2026-11-22) and 2.4 s on two cores.
        success: Exits that systemd takes for an orderly end, besides exit code 0.
        images: Words that show that a container's image holds it.
        tells: Pattern of its log lines about its choices and the memory that it took; "" if
            nobody has read one.
        arguments: Arguments that say so too, by name; its one line of all arguments holds keys.
        packages: Pattern of the distributions of its venv that decide about it.
    """

    name: str
    title: str
    entries: tuple[tuple[str, ...], ...]
    older_entries: tuple[tuple[str, ...], ...] = ()
    entry_points: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    runtimes: tuple[str, ...] = ()
    hints: tuple[tuple[re.Pattern[str], str], ...] = ()
    metrics: Metrics
    phases: tuple[tuple[re.Pattern[str], str], ...]
    in_venv: bool = False
    usual: bool = False
    flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    positional_model: bool = False
    on_python: bool = True
    version_pages: tuple[tuple[str, str], ...] = ()
    each_step: Mapping[str, Any] = field(default_factory=dict)
    logprobs_drafting: bool = True
    compile_pattern: str = ""
    draft_config: tuple[str, ...] = ()
    dotted_flags: bool = False
    always: tuple[str, ...] = ()
    weights: Literal["id", "folder", "file"] = "id"
    hub_model: tuple[str, ...] = ()
    shares_copies: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    prefixes: tuple[str, ...] = ()
    guard: CommandGuard | None = None
    public: bool = False
    unsteady: Mapping[str, str] = field(default_factory=dict)
    corrupting_drafts: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    corrupting_w4a16: Mapping[tuple[str, str], str] = field(default_factory=dict)
    corrupting_experts: Mapping[str, str] = field(default_factory=dict)
    refused_shapes: tuple[Shape, ...] = ()
    keeps_states: str | None = None
    spans_hosts: str | None = None
    executor: str | None = None
    spans_copies: bool = False
    address_variable: str | None = None
    share: float = 0.0
    counts_overhead: bool = False
    pages: bool = False
    window_step: int = 0
    latent_copies: int = 1
    latent_reason: str = ""
    image_cache_gib: float = 0.0
    host_memory: tuple[HostMemory, ...] = ()
    end_s: float = 3.0
    # 143 = 15 + 128: ended by SIGTERM. SIGTERM itself: a check that systemd stops before its
    # program runs. SIGKILL: it did not end within `end_s`.
    success: tuple[str, ...] = ("143", "SIGTERM", "SIGKILL")
    images: tuple[str, ...] = ()
    tells: str = ""
    arguments: tuple[str, ...] = ()
    packages: str = ""

    @property
    def has_rules_by_model_experts(self) -> bool:
        """True if it must be known whether a model is a mixture of experts."""
        return bool(self.guard or self.corrupting_experts)

    def spellings(self, key: str) -> tuple[str, ...]:
        """Return every spelling of the flag for a recipe key, the preferred one first."""
        return self.flags.get(key, ("--" + key.replace("_", "-"),))

    def value(self, argv: Sequence[str], key: str) -> str | None:
        """Return a command line's value for a recipe key, as `value_of` reads it."""
        return value_of(argv, self.spellings(key))

    def has(self, argv: Sequence[str], key: str) -> bool:
        """Tell whether a command line has a recipe key's flag, with a value or without."""
        return flag_span(argv, self.spellings(key)) is not None

    def request_kind(self, argv: Sequence[str]) -> Kind | None:
        """Return the kind of model that the command line asks for; None if it does not say."""
        return None

    def recipe_kernels(
        self, argv: Sequence[str], environment: Mapping[str, str], traits: Collection[str]
    ) -> list[str]:
        """Return the kernels that a recipe will run, by the names of `kernel_self_test.KERNELS`.

        Args:
            argv: Its whole command line.
            environment: Its variables.
            traits: Traits of its checkpoint: "experts", and the widths of its weights "FP8", "FP4".
        """
        return []

    def recipe_refusal(self, version: str, recipe: Mapping[str, Any]) -> str | None:
        """Return why the engine refuses a recipe, with flag and version; None if it takes it.

        Args:
            version: The engine's own version.
            recipe: {"name", "argv", "environment", "read"}; argv is its whole command line, read is
                Lockstep's reading of that (`ParsedCommand.misread_option`).

        Raises:
            EngineUnavailable: The parser cannot be imported, or fails in a way that judges no
                argument, as for want of a GPU or of a folder to write to.
        """
        engine_name, name = f"{self.title} {version}", f"recipe {recipe['name']}"
        error_output = io.StringIO()
        try:
            with (
                contextlib.redirect_stderr(error_output),
                recipe_environment(recipe["environment"], self.prefixes),
            ):
                wrong = self.variable_fault(recipe["environment"])
                if wrong is None:
                    wrong = self.parse(recipe["argv"]).misread_option(recipe.get("read", {}))
        except EngineUnavailable as reason:
            raise EngineUnavailable(f"{engine_name} cannot be imported: {reason}") from None
        except SystemExit:
            return f"{name}: {engine_name} refuses it: {refusal(error_output.getvalue())}"
        except (TypeError, ValueError) as error:
            return f"{name}: {engine_name} refuses it: {error}"
        except Exception as error:
            raise EngineUnavailable(f"{name}: {engine_name} cannot be asked: {error}") from None
        return wrong and f"{name}: {engine_name} {wrong}"

    def recipe_faults_in_image(
        self, recipes: Sequence[Mapping[str, Any]], run: Run
    ) -> dict[str, Any]:
        """Ask the program inside an image which recipes it takes, if it has no parser on Python.

        Args:
            recipes: As for `recipe_refusal`.
            run: Runs a command line with variables inside the image.

        Returns:
            {"version", "faults", "unanswered"}, as `recipe_check_in_image` prints it.
        """
        raise NotImplementedError

    def weight_patterns(self, argv: Sequence[str], repository: str) -> tuple[str, ...]:
        """Return patterns of the top-level files that its loader looks for; the first match counts.

        () means the whole repository: nobody has read which files it takes.
        """
        return ()

    def looks_for_mmproj(self, argv: Sequence[str]) -> bool:
        """Tell whether it would take a vision file (mmproj) that stands beside the model's file."""
        return False

    def context_in_model_card(self, card: Mapping[str, Any]) -> int | None:
        """Return the longest sequence, in tokens, from its entry in /v1/models."""
        return card.get("max_model_len")

    def variable_fault(self, environment: Mapping[str, str]) -> str | None:
        """Return the fault of one of its variables, asked on its own Python."""
        return None

    def parse(self, argv: Sequence[str]) -> ParsedCommand:
        """Read a whole command line with its own parser, on its own Python.

        Raises:
            SystemExit, TypeError or ValueError: The parser refuses the command line.
            EngineUnavailable: The parser cannot be imported.
        """
        raise EngineUnavailable("it has no parser on Python")

    def pool_limit_gib(self, of: Sizes) -> float | None:
        """Return the most that its own rule gives to weights and KV cache, GiB; None: no bound."""
        return None

    def memory_to_start(self, of: Sizes) -> Need:
        """Return the memory that must be available before it starts."""
        kept_gib = 0.0 if of.weights is None else of.weights + (of.kv_cache or of.sequence)
        return Need(max(kept_gib + of.overhead + of.host, of.published_gib or 0.0))

    def rank_recipe_keys(
        self, *, rank: int, size: int, master: str, port: int, copies: int
    ) -> dict[str, object]:
        """Return the recipe keys that make it one rank of a model's several ranks; {}: it cannot.

        Args:
            rank: Its place among them.
            size: The number of ranks.
            master: Address where the ranks meet.
            port: Port there.
            copies: Copies of the model, one per rank; with 1 the ranks split one copy.
        """
        return {}

    def sparkrun_runtime(self, runtime_name: str, command: str, defaults: Mapping[str, Any]) -> str:
        """Return the runtime that sparkrun makes of one of `runtimes`, by a recipe's other keys."""
        return runtime_name
