"""The interface of an engine; each engine's module implements it.

Shared by both sides, so standard library only. Inside an image it runs on the image's Python.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from subprocess import CompletedProcess
from typing import Any, Literal

from lockstep.onhost.core.kind import Kind, Shape
from lockstep.onhost.core.need import Need
from lockstep.onhost.engines.argv import find, is_flag, value_of
from lockstep.onhost.engines.metrics import Metrics
from lockstep.onhost.engines.parser import Reading, Unanswered, given, refusal

#: Runs a command line with variables, somewhere.
Run = Callable[[Sequence[str], Mapping[str, str]], CompletedProcess[str]]
# What PyTorch's loaders and uvicorn write, whichever engine runs them.
LOADING = (
    re.compile(r"oading .*checkpoint shards:\s+\d+% Completed \| (?P<done>\d+)/(?P<all>\d+)"),
    "loading weights, file {done} of {all}",
)
#: Of a kernel that the driver is to compile, from an image whose CUDA is newer than the driver's:
#: it ends the engine while graphs are captured (vllm-project/vllm#47397, a Spark, 2026-07-02).
TOO_NEW = (
    re.compile(r"cudaErrorUnsupportedPtxVersion|PTX was compiled with an unsupported toolchain"),
    "a kernel cannot be compiled here: the image's CUDA is newer than the driver's",
)
CAPTURING = (re.compile(r"Captur\w+ .*?(?P<percent>\d+)%\|"), "capturing CUDA graphs, {percent} %")
OPEN = (re.compile(r"Application startup complete"), "port open")
# What vLLM and SGLang look for by `--load-format` (vLLM 0.32.0, SGLang 0.5.23; 2026-11-28).
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
class Guard:
    """How an engine is kept off the kernels that freeze a Spark.

    Attributes:
        flag: What chooses the kernels of a mixture of experts, above everything else.
        quantised: Its value for experts that are stored quantised.
        unquantised: Its value for others.
        freezing: Values of it that lead to those kernels.
        draft_key: The same choice in `draft_config`, for the draft alone.
        variable: What chose them before there was the flag, and means nothing beside it.
        freezing_value: Value of that variable that leads there.
    """

    flag: str
    quantised: str
    unquantised: str
    freezing: frozenset[str]
    draft_key: str
    variable: str
    freezing_value: str


@dataclass(frozen=True, kw_only=True)
class HostMemory:
    """What an engine keeps in the host's memory where it is asked to: on a Spark the GPU's own.

    Attributes:
        what: What is kept there.
        flags: A regular expression of the flags that ask for it, written with dashes.
        variables: The same of variables.
        unit_gib: GiB of one of its value, where it is counted; 0: it is a second copy of what is
            in memory already, or grows without a bound, and is refused.
        usual_gib: What is kept where nothing is said.
        seen_gib: What of it is in the overhead of `hardware.yaml` already.
    """

    what: str
    flags: str = ""
    variables: str = ""
    unit_gib: float = 0.0
    usual_gib: float = 0.0
    seen_gib: float = 0.0

    def requests(
        self, argv: Sequence[str], variables: Mapping[str, str]
    ) -> tuple[tuple[str, str], ...]:
        """(flag or variable, its value) for each that asks for it, flags last, as they win."""
        named = [pair for pair in variables.items() if re.fullmatch(self.variables, pair[0])]
        for index, word in enumerate(argv):
            if not word.startswith("-"):
                continue
            flag, given, value = word.partition("=")
            if re.fullmatch(self.flags, flag):
                after = argv[index + 1] if index + 1 < len(argv) else ""
                # A flag alone is on.
                value = value if given else "" if is_flag(after) else after
                named.append((flag, value))
        return tuple(named)

    def gib(self, argv: Sequence[str], variables: Mapping[str, str]) -> float:
        """GiB of it beside the overhead; 0 where it is refused, or its value is no number."""
        kept = self.usual_gib
        for _, value in self.requests(argv, variables):
            with contextlib.suppress(ValueError):
                kept = float(value) * self.unit_gib
        return max(0.0, kept - self.seen_gib)

    def refused(
        self, argv: Sequence[str], variables: Mapping[str, str]
    ) -> tuple[tuple[str, str], ...]:
        """Those of `requests` that may not be: any, or where it is counted, one without a bound."""
        return tuple(
            (name, value)
            for name, value in self.requests(argv, variables)
            if (value.startswith("-") if self.unit_gib else value.strip().lower() not in _OFF)
        )


_OFF = ("0", "0.0", "false", "no", "off", "none")

#: Caches of KV blocks that engines take as a plug-in.
CONNECTORS = HostMemory(
    what="a second copy of KV blocks",
    variables=(
        r"LMCACHE_(?:MAX_)?LOCAL_CPU(?:_SIZE)?|LMCACHE_CONFIG_FILE|MOONCAKE_\w*(?:SIZE|CONFIG_PATH)"
        r"|DYN_KVBM_CPU_CACHE_\w+|(?:FLEXKV|UCM|UNIFIED_CACHE)_\w*(?:CPU|DRAM|HOST|CONFIG)\w*"
    ),
)
#: Tables, layers and copies, by how engines call their flags for such.
TABLES = HostMemory(
    what="tables or layers",
    flags=(
        r"--(?!no-)(?:[\w-]+-)?(?:cpu|host|dram)-(?:offload|backup|cache|pool|tables?|embeddings?)"
        r"(?:-gb|-gib|-size|-ratio)?"
        r"|--(?!no-)[\w-]*(?:ngram|engram|ple|embeddings?|tables?)-(?:offload|cpu|host|dram)[\w-]*"
        r"|--offload-(?:ngram|engram|ple|embeddings?|tables?)[\w-]*"
    ),
)


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What decides the memory of an engine on one host, GiB.

    Attributes:
        share: Share of the memory that the recipe gives it (0 to 1), or None.
        kv_cache: KV cache that the recipe gives as a size, or None.
        weights: Weights, the draft's included; None: nobody published them.
        sequence: KV cache and state of one sequence.
        published: What somebody saw it hold, or None.
        total: MemTotal of the machine.
        start: What an engine's processes take before it looks how much is available.
        at_rest: What it finds then on a machine with nothing else to do.
        overhead: What it holds beside weights and KV cache, in the better observed case.
        beyond: What it takes beyond its share once it serves.
        host: What it is asked to keep in the host's memory beside all that.
    """

    share: float | None
    kv_cache: float | None
    weights: float | None
    sequence: float
    published: float | None
    total: float
    start: float
    at_rest: float
    overhead: float
    beyond: float = 0.0
    host: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Engine:
    """One engine. What is given here is right for an engine that says nothing else.

    Attributes:
        name: In recipes, in the names of its files in the catalogue, and on a host.
        title: In sentences.
        entries: The words that start it; the first ones are written where a recipe has no command.
        older_entries: Words that started older releases of it.
        entry_points: Repository of images → their entry point, where that starts it already.
        runtimes: sparkrun's runtimes that drive it.
        hints: The start of a command → the runtime that it stands for.
        in_venv: Whether it runs in a venv of the host, too, not in an image only.
        usual: Whether a recipe that names no runtime means its first one.
        flags: Recipe key → spellings of its flag, the one that is written first; () for a key that
            it has no flag for. Other keys are the flag of the same name with dashes.
        variables: Recipe key → variable that means the same as its flag, which wins.
        positional_model: Whether the model stands right after `entries`, without a flag.
        draft_config: Spellings of the flag whose JSON value describes the draft; () where it has a
            flag for each part.
        dotted_flags: Whether `--flag.key value` is a key of the flag's JSON value.
        always: Flags without a value that Lockstep adds to every command line, unless the recipe
            or an override gives their key as false.
        weights: What it is given: the weights' "id" on the hub, their "folder", or their first
            "file".
        hub_model: Spellings of the flag that makes it fetch a model itself; Lockstep takes it out.
        shares_copies: A flag with which data parallelism splits the hosts of one copy.
        environment: Variables that it gets from Lockstep.
        prefixes: How its own variables begin.
        guard: Its freeze guard; None where none is needed.
        public: Whether it listens on every address where it is not told one.
        unsteady: Method of drafting → what was seen of it on an image whose tag moves.
        corrupting_drafts: Method of drafting → the number of draft tokens, also the checkpoint's,
            with which answers were seen to be wrong now and then; and what was seen.
        corrupting_w4a16: Flag and value → what was seen of these kernels with weights of 4 bits.
        corrupting_experts: Releases (a version specifier) → what is known of the kernels that they
            take on a Spark for experts in NVFP4 as compressed-tensors stores them, whatever the
            flags say.
        refused_shapes: Shapes of a conversation that it refuses whatever the chat template.
        keeps_states: First release known to keep the states of earlier prompts of a hybrid model
            where a recipe says nothing of it; None: it always does.
        spans_hosts: First release that serves one model on several hosts without Ray; None: none.
        executor: Its own word for doing so, of `distributed_executor_backend`; None: it has none.
        spans_copies: Whether copies of a model, one on each host, are served as one.
        address_variable: Which variable tells a rank its own address, or None.
        share: Share of the memory that it takes where a recipe names none; 0: it knows no
            share.
        counts_overhead: Whether its overhead is inside its share, not beside it.
        pages: Whether all layers share a KV cache of pages of one size.
        image_cache_gib: What it takes of its share for images before the KV cache.
        on_python: Whether its parser is asked on its own Python; else the program itself is run.
        version_pages: Page of its API → key of its version there.
        each_step: Keys of a streamed request with which it sends an event at each step, also while
            a parser holds the text back; {}: it has none.
        logprobs_drafting: Whether it gives log-probabilities while it drafts.
        compiled: What its log says when a request had to wait for a kernel to be compiled, a
            regular expression; "": its log does not say.
        metrics: Names on its Prometheus page.
        phases: Lines of its log → how far its start is, first match wins. A line that matches
            nothing is no phase: a wrong guess would be worse than silence.
        host_memory: What it may be asked to keep in the host's memory.
        end_s: How long it may take to end, seconds; then it is killed (`end_engine`). An idle vLLM
            took 0.4 to 0.7 s on one H200 (0.26, 2026-11-22) and 2.4 s on two cores.
        success: What systemd is to take for an orderly end, beside exit code 0.
        images: Words by which a container's image is known to hold it.
        tells: Pattern of what its log says about what it chose and how much memory it took; ""
            where nobody has read one.
        arguments: Names in its one line with all arguments that say so, too; that line holds keys.
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
    compiled: str = ""
    draft_config: tuple[str, ...] = ()
    dotted_flags: bool = False
    always: tuple[str, ...] = ()
    weights: Literal["id", "folder", "file"] = "id"
    hub_model: tuple[str, ...] = ()
    shares_copies: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    prefixes: tuple[str, ...] = ()
    guard: Guard | None = None
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
    image_cache_gib: float = 0.0
    host_memory: tuple[HostMemory, ...] = ()
    end_s: float = 3.0
    # 15 + 128: ended by SIGTERM. The signal itself: a check that systemd stops before its program
    # runs. SIGKILL: it did not end within `end_s`.
    success: tuple[str, ...] = ("143", "SIGTERM", "SIGKILL")
    images: tuple[str, ...] = ()
    tells: str = ""
    arguments: tuple[str, ...] = ()
    packages: str = ""

    @property
    def minds_experts(self) -> bool:
        """Whether it must be known if a model is a mixture of experts."""
        return bool(self.guard or self.corrupting_experts)

    def spellings(self, key: str) -> tuple[str, ...]:
        """Every spelling of the flag for a recipe key, the preferred one first."""
        return self.flags.get(key, ("--" + key.replace("_", "-"),))

    def value(self, argv: Sequence[str], key: str) -> str | None:
        """What a command line gives for a recipe key, as `value_of` reads it."""
        return value_of(argv, self.spellings(key))

    def has(self, argv: Sequence[str], key: str) -> bool:
        """Whether a command line has a recipe key's flag, with a value or without."""
        return find(argv, self.spellings(key)) is not None

    def kind(self, argv: Sequence[str]) -> Kind | None:
        """What a command line says that the model is asked for; None where it does not say."""
        return None

    def parts(
        self, argv: Sequence[str], environment: Mapping[str, str], traits: Collection[str]
    ) -> list[str]:
        """The back-ends that a recipe will run, by the names of `engine_kernels.KERNELS`.

        Args:
            argv: Its whole command line.
            environment: Its variables.
            traits: Of its checkpoint: "experts", and the widths of its weights "FP8", "FP4".
        """
        return []

    def fault(self, version: str, recipe: Mapping[str, Any]) -> str | None:
        """Why it refuses a recipe, with flag and version; None when it takes it.

        Args:
            version: What it calls itself.
            recipe: {"name", "argv", "environment", "read"}; argv is its whole command line, read
                what Lockstep read there (`Reading.differs`).

        Raises:
            Unanswered: the parser cannot be imported, or fails in a way that judges no argument,
                as for want of a GPU or of a folder to write to.
        """
        known, name = f"{self.title} {version}", f"recipe {recipe['name']}"
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said), given(recipe["environment"], self.prefixes):
                wrong = self.wrong_variable(recipe["environment"])
                if wrong is None:
                    wrong = self.parse(recipe["argv"]).differs(recipe.get("read", {}))
        except Unanswered as reason:
            raise Unanswered(f"{known} cannot be imported: {reason}") from None
        except SystemExit:
            return f"{name}: {known} refuses it: {refusal(said.getvalue())}"
        except (TypeError, ValueError) as error:
            return f"{name}: {known} refuses it: {error}"
        except Exception as error:
            raise Unanswered(f"{name}: {known} cannot be asked: {error}") from None
        return wrong and f"{name}: {known} {wrong}"

    def answer(self, recipes: Sequence[Mapping[str, Any]], run: Run) -> dict[str, Any]:
        """Which recipes the program inside an image takes, where that is not asked on Python.

        Args:
            recipes: As for `fault`.
            run: Runs a command line with variables inside the image.

        Returns:
            {"version", "faults", "unanswered"}, as `image_answer` prints it.
        """
        raise NotImplementedError

    def weight_patterns(self, argv: Sequence[str], repository: str) -> tuple[str, ...]:
        """The files at the top of a repository that its loader looks for, the first that is there.

        () for all of the repository: nobody has read what it takes.
        """
        return ()

    def looks_for_mmproj(self, argv: Sequence[str]) -> bool:
        """Whether it would take a file that sees, where one stands beside the model's."""
        return False

    def context(self, card: Mapping[str, Any]) -> int | None:
        """The longest sequence, tokens, as its entry in /v1/models says."""
        return card.get("max_model_len")

    def wrong_variable(self, environment: Mapping[str, str]) -> str | None:
        """What is wrong with one of its variables, asked on its own Python."""
        return None

    def parse(self, argv: Sequence[str]) -> Reading:
        """The reading of a whole command line by its own parser, on its own Python.

        Raises:
            SystemExit, TypeError or ValueError: it refuses it.
            Unanswered: it cannot be imported.
        """
        raise Unanswered("it has no parser on Python")

    def pool(self, of: Sizes) -> float | None:
        """The most that it gives to weights and KV cache by its own rule, GiB; None: no bound."""
        return None

    def need(self, of: Sizes) -> Need:
        """What must be available before it starts."""
        kept = 0.0 if of.weights is None else of.weights + (of.kv_cache or of.sequence)
        return Need(max(kept + of.overhead + of.host, of.published or 0.0))

    def rank_arguments(
        self, *, rank: int, size: int, master: str, port: int, copies: int
    ) -> dict[str, object]:
        """Recipe keys that make it one rank of several that serve one model; {}: it cannot.

        Args:
            rank: Its place among them.
            size: How many there are.
            master: Address where the ranks meet.
            port: Port there.
            copies: Copies of the model, one per rank; with 1 the ranks split one copy.
        """
        return {}

    def runtime(self, named: str, command: str, defaults: Mapping[str, Any]) -> str:
        """The runtime that sparkrun makes of one of `runtimes`, by a recipe's other fields."""
        return named
