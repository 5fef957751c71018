"""Does it fit? Arithmetic on published figures; `docs/fit.md` explains each term.

All sizes are GiB per host. The overhead of an engine is a range between two observed cases, and the
better one is computed where its profile is known (`profile`). So the verdict has a middle: "tight"
fits with the better case and not with the worse.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from lockstep.fit import profile
from lockstep.fit.pages import SEQUENCES, sequence_bytes, state_blocks, with_head
from lockstep.models.architecture import Architecture, ArchitectureUnknown, Layers, element_bytes
from lockstep.models.known_models import GIB, USUAL, Hardware, Knowledge, Model
from lockstep.onhost.core.need import Need, rounded_up
from lockstep.onhost.engines import Engine, Sizes
from lockstep.recipes.placeholders import engine_of
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.sizing import Serving, serving
from lockstep.recipes.stated import stated_architecture, stated_weights

OVERHEAD = "overhead, at least"
HOST = "in the host's memory"
#: MemAvailable below which an engine is ended, GiB: while it loads, while it is hot; None: unsaid.
Floors = tuple[float | None, float | None]
UNSAID: Floors = (None, None)
# To begin with; no Spark has confirmed them (docs/memory.md, Evidence). A tight recipe loads with
# less, but not below what earlyoom would end it at: 3 % of 121.7 GiB are 3.7.
_LOADING_GIB, SERVING_GIB = 8.0, 4.0
# "low" is the better case of those seen, for what must be available; "least" refuses nothing that
# some model would need less for.
_End = Literal["least", "low", "high"]
Verdict = Literal["fits", "tight", "does not fit", "unknown"]


@dataclass(frozen=True, slots=True)
class Term:
    """One summand: its name, its GiB per host, and where the figure comes from."""

    name: str
    gib: float
    source: str


@dataclass(frozen=True, slots=True)
class Fit:
    """The answer for one recipe on one kind of machine.

    Attributes:
        verdict: "unknown" where weights or shapes are not published.
        hosts: Sparks the recipe runs on.
        budget_gib: What the recipe lets the engine take per host, None where it sets no bound.
        terms: Weights, draft and overhead (the better case) per host.
        room_gib: KV cache left per host, (worse, better) case; None where unknown.
        sequence_gib: KV cache and state of one sequence at `context`, per host.
        context: The recipe's context, tokens (the model's own where the recipe names none).
        largest_context: Longest context for one sequence in the worse case, tokens.
        sequences: Sequences of `context` that fit in the worse case.
        asked_sequences: Most sequences at a time, by the recipe or the engine's default.
        states: Sequences whose states there is room for, (worse, better) case; vLLM refuses to
            start with more at a time. None where nothing is recurrent.
        host_use_gib: Memory in use on the host while it serves, the system included.
        need: What must be available before its engine starts, with the higher floor in it.
        floors: MemAvailable below which the engine is ended, GiB: while it loads, while it is hot.
        needs_gib: `need` for this machine: the least MemAvailable to serve `context`.
        loads_gib: The least MemAvailable with which it loads, for shorter sequences.
        reasons: Sentences that explain a verdict other than "fits".
    """

    verdict: Verdict
    hosts: int
    context: int | None
    need: Need
    needs_gib: float
    loads_gib: float
    floors: tuple[float, float] = (_LOADING_GIB, SERVING_GIB)
    budget_gib: float | None = None
    terms: tuple[Term, ...] = ()
    room_gib: tuple[float, float] | None = None
    sequence_gib: float | None = None
    largest_context: int | None = None
    sequences: int | None = None
    asked_sequences: int | None = None
    states: tuple[int, int] | None = None
    host_use_gib: float | None = None
    reasons: tuple[str, ...] = ()


def fit(
    recipe: Recipe,
    knowledge: Knowledge,
    *,
    machine: str = USUAL,
    total: float | None = None,
    asked: Serving | None = None,
    floors: Floors = UNSAID,
) -> Fit:
    """Whether a recipe fits its hosts, with the numbers.

    `machine` is a name in ``hardware.yaml``, whose least MemTotal counts unless `total` is that of
    a host (GiB); `asked` is judged instead of the settings of the recipe's own command line;
    `floors` is what the inventory says. RecipeError where that command line cannot be built, or
    Lockstep does not run the engine.
    """
    return prepare(recipe, knowledge, machine=machine, total=total, floors=floors)(asked)


def prepare(
    recipe: Recipe,
    knowledge: Knowledge,
    *,
    machine: str = USUAL,
    total: float | None = None,
    floors: Floors = UNSAID,
) -> Callable[[Serving | None], Fit]:
    """Prepare `fit` for many values of `asked`: what does not depend on it is computed once."""
    draft, own = recipe.lockstep.draft, serving(recipe)
    start = _Case(
        asked=own,
        engine=engine_of(recipe),
        model=model_of(recipe, knowledge),
        draft=knowledge.model(draft.model) if draft else None,
        machine=knowledge.hardware[machine],
        total=total or knowledge.hardware[machine].gib("memory_total_gib"),
        said=floors,
        published=None,
    )

    def answer(asked: Serving | None) -> Fit:
        asked = asked or own
        # What was published holds for the share that it was published with, and a share for the
        # machine.
        same = asked.utilization == own.utilization and (machine == USUAL or not own.utilization)
        published = recipe.lockstep.memory_gib if same else None
        return replace(start, asked=asked, published=published).answer()

    return answer


def model_of(recipe: Recipe, knowledge: Knowledge) -> Model:
    """Its checkpoint: what the catalogue knows, else what the recipe itself states."""
    model, own = knowledge.model(recipe.model), recipe.lockstep.checkpoint or Model("")
    stated = str(recipe.metadata.get("quantization") or "")
    shapes = model.architecture or own.architecture or stated_architecture(recipe)
    if shapes and recipe.lockstep.moe is False:
        shapes = replace(shapes, dense=True)
    return Model(
        model.id,
        family=model.family or own.family,
        weights_gb=model.weights_gb or own.weights_gb or stated_weights(recipe),
        mtp_gb=model.mtp_gb or own.mtp_gb,
        architecture=shapes,
        quantisation=model.quantisation or own.quantisation or stated,
        vision=own.vision if model.vision is None else model.vision,
        token_gb=model.token_gb or own.token_gb,
    )


@dataclass(frozen=True)
class _Case:
    """One recipe's settings on one machine."""

    asked: Serving
    engine: Engine
    model: Model
    draft: Model | None
    machine: Hardware
    total: float
    said: Floors
    published: float | None

    def answer(self) -> Fit:
        unknown = self.unknowns()
        each = self.sequence_gib(self.context or 0) if self.countable else None
        serves, loads = (self.need(kept) for kept in (each or 0.0, 0.0))
        start = Fit(
            "unknown",
            self.asked.hosts,
            self.context,
            serves,
            needs_gib=serves.available(self.total),
            loads_gib=loads.available(self.total),
            floors=self.floors(serves),
            budget_gib=self.pool,
            reasons=unknown,
        )
        never = self.never_starts(serves)
        if self.model.weights_gb is None:
            return replace(start, reasons=(*unknown, never)) if never else start
        worse, better = self.room("high"), self.room("least")
        verdict, reasons = self.verdict(worse, better, each)
        if never and verdict != "does not fit":
            verdict, reasons = "does not fit", (never,)
        return replace(
            start,
            verdict=verdict,
            terms=(*self.weights(), self.overhead("least"), *self.host_memory()),
            room_gib=(worse, better),
            sequence_gib=each,
            largest_context=None if each is None else self.largest_context(worse),
            sequences=max(0, int(worse // each)) if each else None,
            asked_sequences=self.asked.sequences or SEQUENCES,
            states=self.states(worse, better),
            host_use_gib=self.host_use(each),
            reasons=(*reasons, *unknown),
        )

    def need(self, sequence: float) -> Need:
        """What must be available before a start that is to serve one sequence of so many GiB."""
        need = self.engine.need(self.sizes(sequence))
        # Rounded as it is written for the host, which is to say the same.
        need = replace(need, gib=round(need.gib, 4))
        return replace(need, floor_gib=max(self.floors(need)))

    def floors(self, need: Need) -> tuple[float, float]:
        """MemAvailable below which the engine is ended: while it loads, and while it is hot.

        A host at rest has up to 6 GiB less available than the fit counts with (docs/fit.md): half
        of what the fit leaves is not reached by an engine that fits. They are the same on every
        host of a kind, which preflight may know better.
        """
        loading, serving = self.said
        total = self.machine.gib("memory_total_gib")
        half = (self.machine.at_rest_gib(total) - need.held(total)) / 2
        usual = round(min(_LOADING_GIB, max(SERVING_GIB, half)), 2)
        return (
            usual if loading is None else loading,
            SERVING_GIB if serving is None else serving,
        )

    def never_starts(self, need: Need) -> str:
        """Why the memory gate admits it on no such host, not even at rest; "" where it does."""
        least, there = need.available(self.total), self.machine.at_rest_gib(self.total)
        if least <= there:
            return ""
        return (
            f"{rounded_up(least)} GiB must be available when it starts, {need.floor_gib:g} GiB of "
            f"them for the memory floor, and {there:.1f} GiB are at rest"
        )

    def sizes(self, sequence: float) -> Sizes:
        """What the engine's own arithmetic takes, for one sequence of so many GiB."""
        start = self.machine.gib("engine_start_gib")
        return Sizes(
            share=self.asked.utilization,
            kv_cache=self.asked.kv_gib,
            weights=self.weights_gib if self.model.weights_gb else None,
            sequence=sequence,
            published=self.published,
            total=self.total,
            start=start,
            at_rest=self.total - self.machine.gib("system_gib") - start,
            overhead=self.overhead("low").gib,
            beyond=self.beyond,
            host=self.asked.host_gib,
        )

    @property
    def shapes(self) -> Architecture | None:
        return self.model.architecture

    @property
    def context(self) -> int | None:
        return self.asked.context or (self.shapes.context if self.shapes else None)

    @property
    def countable(self) -> bool:
        """Whether the KV cache of one sequence can be computed."""
        if self.shapes is None or self.context is None:
            return False
        try:
            for kept in (self.asked.kv_dtype, self.asked.state_dtype):
                element_bytes(kept)
        except ArchitectureUnknown:
            return False
        return True

    @property
    def limit(self) -> float:
        """What may be given away at all: the machine's memory less the system's reserve."""
        return self.total - self.machine.gib("reserve_gib")

    @property
    def pool(self) -> float | None:
        """The engine's own bound."""
        return self.engine.pool(self.sizes(0.0))

    def overhead(self, end: _End) -> Term:
        """By the sums of the engine's profile where they are known, else as observed."""
        figure = self.machine.overhead(self.engine.name, end)
        ruled = self.profiled
        if ruled is None or (end == "high" and ruled < float(figure.value)):
            return Term(OVERHEAD, float(figure.value), figure.source)
        return Term(OVERHEAD, ruled, profile.SOURCE)

    @property
    def profiled(self) -> float | None:
        """What the engine's profile holds, GiB; None where that is not known."""
        if self.shapes is None or not self.engine.counts_overhead:
            return None
        # A Hopper's kernels for MXFP4 allocate what others keep as a workspace.
        kept = (self.model.quantisation, self.machine.compute_capability) != ("mxfp4", "9.0")
        return profile.overhead_gib(
            self.shapes, self.asked, vision=self.model.vision, workspace=kept
        )

    @property
    def beyond(self) -> float:
        """What the engine takes beyond its share once it serves.

        The second model runner takes more before 0.30, whose profile sees no graphs, and still more
        with pictures.
        """
        runners = profile.runners(self.shapes or Architecture(()), self.asked)
        second = runners == (2,) and profile.blind(self.asked)
        way = ("sees" if self.model.vision else "second") if second else ""
        return self.machine.beyond_gib(self.engine.name, way)

    @property
    def own_head(self) -> bool:
        """Whether the model's own multi-token-prediction head drafts."""
        return (self.asked.speculative or "").endswith("mtp")

    def weights(self) -> list[Term]:
        """Weights of the model and of its draft, split over the hosts."""
        terms = []
        for name, model in (("weights", self.model), ("draft", self.draft)):
            size = model.weights_gib(head=self.own_head) if model else None
            if model and model.weights_gb and size:
                size *= self.loaded(model)
                terms.append(Term(name, size / self.asked.shares, model.weights_gb.source))
        return terms

    def loaded(self, model: Model) -> float:
        """How much of its stored weights the engine holds: half of those in float32.

        vLLM 0.26 and 0.33 and SGLang 0.5.23 load them in 16 bits unless `--dtype float32` is given
        (`_get_and_verify_dtype`; bge-m3 took 1.06 GiB of 2.12 on an H100, 2026-11-25).
        """
        stored = str(model.quantisation or "").lower() in ("float32", "fp32")
        return 0.5 if stored and self.asked.dtype not in ("float32", "float") else 1.0

    def host_memory(self) -> list[Term]:
        """What its flags and variables ask to keep there, which is the same memory."""
        asked = self.asked.host_gib
        return [Term(HOST, asked, "the recipe, or the engine's default")] if asked else []

    @property
    def weights_gib(self) -> float:
        """All of them on one host."""
        return sum(term.gib for term in self.weights())

    def room(self, end: _End) -> float:
        """KV cache per host with this overhead of the engine (may be negative)."""
        overhead = self.overhead(end).gib
        most = self.limit - overhead - self.asked.host_gib
        if self.pool is not None:
            inside = overhead if self.engine.counts_overhead else self.engine.image_cache_gib
            most = min(most, self.pool - inside)
        left = most - self.weights_gib
        return left if self.asked.kv_gib is None else min(left, self.asked.kv_gib)

    def sequence_gib(self, tokens: int) -> float:
        """KV cache and state of one sequence on one host, its draft's included."""
        asked, layers = self.asked, self.layers()
        if self.engine.pages:
            total = sequence_bytes(layers, tokens, asked)
        else:
            size = element_bytes(asked.kv_dtype)
            total = sum(group.bytes_for(tokens, size, asked.tensor_parallel) for group in layers)
        return total / asked.pipeline_parallel / GIB

    def states(self, *rooms: float) -> tuple[int, int] | None:
        """Sequences whose states go into so many GiB per host, for each of two rooms."""
        if not (self.engine.pages and self.countable):
            return None
        layers, parts = self.layers(), self.asked.pipeline_parallel
        worse, better = (state_blocks(layers, room * parts * GIB, self.asked) for room in rooms)
        return None if worse is None or better is None else (worse, better)

    def largest_context(self, room: float) -> int:
        """The longest context of which one sequence is within ``room`` GiB; 0 for none."""
        lengths = range((self.shapes.context if self.shapes else None) or 2**24)
        return bisect_right(lengths, room, key=lambda last: self.sequence_gib(last + 1))

    def layers(self) -> list[Layers]:
        """Those of the model, with its own head where that drafts, then those of its draft."""
        own, draft = (
            list(model.architecture.layers) if model and model.architecture else []
            for model in (self.model, self.draft)
        )
        return [*(with_head(own) if self.own_head else own), *draft]

    def unknowns(self) -> tuple[str, ...]:
        unknown = []
        if self.model.weights_gb is None:
            unknown.append(f"the size of {self.model.id} is not known")
        if self.shapes is None:
            unknown.append(f"the shapes of {self.model.id}, and so its KV cache, are not known")
        elif self.context is None:
            unknown.append("neither recipe (max_model_len) nor model says how long a context is")
        elif not self.countable:
            unknown.append(f"the size of a {self.asked.kv_dtype} KV cache is not known")
        if self.engine.counts_overhead and self.profiled is None:
            least, most = self.overhead("least").gib, self.overhead("high").gib
            unknown.append(
                f"what the profile of {self.engine.title} holds of {self.model.id} is not known: "
                f"{least:g} to {most:g} GiB are counted"
            )
        if self.draft and not self.draft.weights_gb:
            unknown.append(f"the size of the draft {self.draft.id} is not known")
        if self.draft and not self.draft.architecture:
            unknown.append(f"the KV cache of the draft {self.draft.id} is not known, not counted")
        return tuple(unknown)

    def verdict(
        self, worse: float, better: float, each: float | None
    ) -> tuple[Verdict, tuple[str, ...]]:
        if self.pool is not None and self.pool + self.beyond > self.limit:
            return "does not fit", (
                f"the engine may take {self.pool + self.beyond:.1f} GiB, and "
                f"{self.limit:.1f} GiB is the most that leaves the system its reserve",
            )
        needed = each or 0.0
        if better <= 0 or better < needed:
            return "does not fit", (self.shortage(better, needed),)
        if each is None:
            return "unknown", ()
        if worse < needed:
            return "tight", ("in the worse observed case " + self.shortage(worse, needed),)
        return "fits", ()

    def shortage(self, room: float, needed: float) -> str:
        if room <= 0:
            return (
                f"{self.weights_gib:.1f} GiB of weights per Spark leave no room for a KV cache: "
                f"{-room:.1f} GiB are missing"
            )
        return (
            f"one sequence of {self.context} tokens needs {needed:.1f} GiB of KV cache and "
            f"{room:.1f} GiB are left"
        )

    def host_use(self, each: float | None) -> float | None:
        """The system, the engine's pool, and what stands beside the pool (better case)."""
        system = self.machine.gib("system_gib") + self.asked.host_gib
        overhead = self.overhead("low").gib
        if self.pool is not None:
            beside = self.beyond if self.engine.counts_overhead else overhead
            return system + self.pool + beside
        kept = self.asked.kv_gib or each
        return None if kept is None else system + self.weights_gib + kept + overhead
