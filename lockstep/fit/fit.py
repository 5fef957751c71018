"""The fit of a recipe by arithmetic on published figures; `docs/fit.md` explains each term.

All sizes are GiB per host. The overhead of an engine is a range between two observed cases, and the
better one is computed where its profile is known (`profile`). So the verdict has a middle: "tight"
fits with the better case and not with the worse.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from lockstep.checkpoints.architecture import (
    Architecture,
    ArchitectureUnknown,
    Layers,
    element_bytes,
)
from lockstep.checkpoints.known_checkpoints import GIB, USUAL, Hardware, Knowledge, KnownCheckpoint
from lockstep.fit import profile
from lockstep.fit.pages import SEQUENCES, sequence_bytes, state_blocks, with_head
from lockstep.onhost.core.memory_requirement import Need, rounded_up
from lockstep.onhost.engines import Engine, Sizes
from lockstep.recipes.draft import draft_of
from lockstep.recipes.placeholders import engine_of
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.sizing import Serving, serving
from lockstep.recipes.stated_facts import stated_architecture, stated_weights

OVERHEAD = "overhead, at least"
HOST = "in the host's memory"
#: MemAvailable below which an engine is ended, GiB: while it loads, while it is hot; None: unsaid.
Minimums = tuple[float | None, float | None]
UNSAID: Minimums = (None, None)
# First guesses, in GiB; no Spark has confirmed them (docs/memory.md, Evidence). A tight recipe
# loads with less, but not below what earlyoom would end it at: 3 % of 121.7 GiB are 3.7.
_LOADING_GIB, SERVING_GIB = 8.0, 4.0
# "low" is the better of the observed cases, used for the memory that must be available. "least"
# refuses nothing that some model would need less for.
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
        budget_gib: Memory that the engine may take per host, None where the recipe sets no bound.
        terms: Weights, draft and overhead (the better case) per host.
        room_gib: KV cache left per host, (worse, better) case; None where unknown.
        sequence_gib: KV cache and state of one sequence at `context`, per host; where builds of an
            engine differ, the least of them.
        context: The recipe's context, tokens (the model's own where the recipe names none).
        largest_context: Longest context for one sequence in the worse case, tokens.
        sequences: Sequences of `context` that fit in the worse case.
        asked_sequences: Most sequences at a time, by the recipe or the engine's default.
        states: Number of sequences whose states fit, (worse, better) case; vLLM refuses to start
            with more at a time. None where nothing is recurrent.
        host_use_gib: Memory in use on the host while it serves, the system included.
        need: Memory that must be available before its engine starts, with the higher minimum in it.
        minimums: MemAvailable below which the engine is ended, GiB: while it loads, while it is
            hot.
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
    minimums: tuple[float, float] = (_LOADING_GIB, SERVING_GIB)
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
    minimums: Minimums = UNSAID,
) -> Fit:
    """Return whether a recipe fits its hosts, with the numbers.

    `machine` is a name in ``hardware.yaml``, whose least MemTotal counts unless `total` is that of
    a host (GiB); `asked` is judged instead of the settings of the recipe's own command line;
    `minimums` is what the inventory says. RecipeError where that command line cannot be built, or
    Lockstep does not run the engine.
    """
    return prepare(recipe, knowledge, machine=machine, total=total, minimums=minimums)(asked)


def prepare(
    recipe: Recipe,
    knowledge: Knowledge,
    *,
    machine: str = USUAL,
    total: float | None = None,
    minimums: Minimums = UNSAID,
) -> Callable[[Serving | None], Fit]:
    """Return `fit` for many values of `asked`; what does not depend on it is computed once."""
    draft, own = draft_of(recipe), serving(recipe)
    start = _Case(
        serving=own,
        engine=engine_of(recipe),
        model=checkpoint_of(recipe, knowledge),
        draft=knowledge.checkpoint(draft.model) if draft else None,
        machine=knowledge.hardware[machine],
        total=total or knowledge.hardware[machine].gib("memory_total_gib"),
        minimums_given=minimums,
        published_gib=None,
    )

    def answer(settings: Serving | None) -> Fit:
        settings = settings or own
        # The published overhead holds only for the share and the machine that it was published
        # with.
        is_same_share = settings.utilization == own.utilization and (
            machine == USUAL or not own.utilization
        )
        published_gib = recipe.lockstep.memory_gib if is_same_share else None
        return replace(start, serving=settings, published_gib=published_gib).answer()

    return answer


def checkpoint_of(recipe: Recipe, knowledge: Knowledge) -> KnownCheckpoint:
    """Return the facts of the recipe's checkpoint: the catalogue's, else what the recipe states."""
    model, own = (
        knowledge.checkpoint(recipe.model),
        recipe.lockstep.checkpoint or KnownCheckpoint(""),
    )
    stated_quantisation = str(recipe.metadata.get("quantization") or "")
    shapes = model.architecture or own.architecture or stated_architecture(recipe)
    if shapes and recipe.lockstep.moe is False:
        shapes = replace(shapes, dense=True)
    return KnownCheckpoint(
        model.id,
        family=model.family or own.family,
        weights_gb=model.weights_gb or own.weights_gb or stated_weights(recipe),
        mtp_gb=model.mtp_gb or own.mtp_gb,
        architecture=shapes,
        quantisation=model.quantisation or own.quantisation or stated_quantisation,
        vision=own.vision if model.vision is None else model.vision,
        token_gb=model.token_gb or own.token_gb,
    )


def unknown_types(settings: Serving) -> dict[str, str]:
    """Return the types of KV cache and states whose size is not known, by their recipe keys."""
    types = {"kv_cache_dtype": settings.kv_dtype, "mamba_ssm_cache_dtype": settings.state_dtype}
    for key, dtype in list(types.items()):
        with suppress(ArchitectureUnknown):
            element_bytes(dtype)
            del types[key]
    return types


@dataclass(frozen=True)
class _Case:
    """The settings of one recipe on one machine."""

    serving: Serving
    engine: Engine
    model: KnownCheckpoint
    draft: KnownCheckpoint | None
    machine: Hardware
    total: float
    minimums_given: Minimums
    published_gib: float | None

    def answer(self) -> Fit:
        unknown = self.unknowns()
        sequence_gib, most_gib = self.sequences() if self.countable else (None, None)
        serves, loads = (self.need(kept_gib) for kept_gib in (sequence_gib or 0.0, 0.0))
        start = Fit(
            "unknown",
            self.serving.hosts,
            self.context,
            serves,
            needs_gib=serves.available(self.total),
            loads_gib=loads.available(self.total),
            minimums=self.minimums(serves),
            budget_gib=self.pool,
            reasons=unknown,
        )
        never = self.never_starts(serves)
        if self.model.weights_gb is None:
            return replace(start, reasons=(*unknown, never)) if never else start
        worse, better = self.room("high"), self.room("least")
        verdict, reasons = self.verdict(worse, better, sequence_gib, most_gib)
        if never and verdict != "does not fit":
            verdict, reasons = "does not fit", (never,)
        return replace(
            start,
            verdict=verdict,
            terms=(*self.weights(), self.overhead("least"), *self.host_memory()),
            room_gib=(worse, better),
            sequence_gib=sequence_gib,
            largest_context=None if sequence_gib is None else self.largest_context(worse),
            sequences=max(0, int(worse // most_gib)) if most_gib else None,
            asked_sequences=self.serving.sequences or SEQUENCES,
            states=self.states(worse, better),
            host_use_gib=self.host_use(sequence_gib),
            reasons=(*reasons, *unknown),
        )

    def need(self, sequence: float) -> Need:
        """Return the memory to have before a start that serves one sequence of so many GiB."""
        need = self.engine.memory_to_start(self.sizes(sequence))
        # Rounded as it is written for the host, so that both say the same.
        need = replace(need, gib=round(need.gib, 4))
        return replace(need, minimum_gib=max(self.minimums(need)))

    def minimums(self, need: Need) -> tuple[float, float]:
        """Return MemAvailable below which the engine is ended: while it loads, and while it is hot.

        A host at rest has up to 6 GiB less available than the fit counts with (docs/fit.md): an
        engine that fits does not reach half of what the fit leaves. Both figures are the same on
        every host of a kind; preflight may know the kind better.
        """
        loading, serving = self.minimums_given
        total = self.machine.gib("memory_total_gib")
        half = (self.machine.at_rest_gib(total) - need.serving_peak_gib(total)) / 2
        usual = round(min(_LOADING_GIB, max(SERVING_GIB, half)), 2)
        return (
            usual if loading is None else loading,
            SERVING_GIB if serving is None else serving,
        )

    def never_starts(self, need: Need) -> str:
        """Return why the memory gate never admits the engine, even at rest; "" where it does."""
        least, at_rest_gib = need.available(self.total), self.machine.at_rest_gib(self.total)
        if least <= at_rest_gib:
            return ""
        return (
            f"{rounded_up(least)} GiB must be available when it starts, {need.minimum_gib:g} GiB "
            f"of them for the memory minimum, and {at_rest_gib:.1f} GiB are at rest"
        )

    def sizes(self, sequence: float) -> Sizes:
        """Return the figures of the engine's own arithmetic, for one sequence of so many GiB."""
        start = self.machine.gib("engine_start_gib")
        return Sizes(
            share=self.serving.utilization,
            kv_cache=self.serving.kv_gib,
            weights=self.weights_gib if self.model.weights_gb else None,
            sequence=sequence,
            published_gib=self.published_gib,
            total=self.total,
            start=start,
            at_rest=self.total - self.machine.gib("system_gib") - start,
            overhead=self.overhead("low").gib,
            beyond=self.beyond,
            host=self.serving.host_gib,
        )

    @property
    def shapes(self) -> Architecture | None:
        return self.model.architecture

    @property
    def context(self) -> int | None:
        return self.serving.context or (self.shapes.context if self.shapes else None)

    @property
    def countable(self) -> bool:
        """True if the KV cache of one sequence can be computed."""
        is_known = self.shapes is not None and self.context is not None
        return is_known and not unknown_types(self.serving)

    @property
    def limit(self) -> float:
        """The memory that may be given away, GiB: the machine's less the system's reserve."""
        return self.total - self.machine.gib("reserve_gib")

    @property
    def pool(self) -> float | None:
        """The engine's own bound, GiB; None without one."""
        return self.engine.pool_limit_gib(self.sizes(0.0))

    def overhead(self, end: _End) -> Term:
        """Return the engine's overhead, by the sums of its profile if known, else as observed."""
        figure = self.machine.overhead(self.engine.name, end)
        computed_gib = self.profile_gib
        if computed_gib is None or (end == "high" and computed_gib < float(figure.value)):
            return Term(OVERHEAD, float(figure.value), figure.source)
        return Term(OVERHEAD, computed_gib, profile.SOURCE)

    @property
    def profile_gib(self) -> float | None:
        """The memory that the engine's profile holds, GiB; None where that is not known."""
        if self.shapes is None or not self.engine.counts_overhead:
            return None
        # Kernels for MXFP4 on a Hopper allocate what others keep as a workspace.
        has_workspace = (self.model.quantisation, self.machine.compute_capability) != (
            "mxfp4",
            "9.0",
        )
        return profile.overhead_gib(
            self.shapes, self.serving, vision=self.model.vision, workspace=has_workspace
        )

    @property
    def beyond(self) -> float:
        """The memory that the engine takes beyond its share once it serves.

        The second model runner takes more before 0.30, because its profile sees no graphs, and
        still more with pictures.
        """
        runners = profile.runners(self.shapes or Architecture(()), self.serving)
        second = runners == (2,) and profile.blind(self.serving)
        way = ("sees" if self.model.vision else "second") if second else ""
        return self.machine.beyond_gib(self.engine.name, way)

    @property
    def own_head(self) -> bool:
        """True if the model's own multi-token-prediction head drafts."""
        return (self.serving.speculative or "").endswith("mtp")

    def weights(self) -> list[Term]:
        """Return the weights of the model and of its draft, split over the hosts."""
        terms = []
        for name, model in (("weights", self.model), ("draft", self.draft)):
            size = model.weights_gib(head=self.own_head) if model else None
            if model and model.weights_gb and size:
                size *= self.loaded_share(model)
                terms.append(Term(name, size / self.serving.shares, model.weights_gb.source))
        return terms

    def loaded_share(self, model: KnownCheckpoint) -> float:
        """Return the part of the stored weights that the engine holds: half of those in float32.

        vLLM 0.26 and 0.33 and SGLang 0.5.23 load them in 16 bits unless `--dtype float32` is given
        (`_get_and_verify_dtype`; bge-m3 took 1.06 GiB of 2.12 on an H100, 2026-11-25).
        """
        is_float32 = str(model.quantisation or "").lower() in ("float32", "fp32")
        return 0.5 if is_float32 and self.serving.dtype not in ("float32", "float") else 1.0

    def host_memory(self) -> list[Term]:
        """Return the host memory that flags and variables ask for, which is the same memory."""
        host_gib = self.serving.host_gib
        return [Term(HOST, host_gib, "the recipe, or the engine's default")] if host_gib else []

    @property
    def weights_gib(self) -> float:
        """The weights on one host, GiB, the draft's included."""
        return sum(term.gib for term in self.weights())

    def room(self, end: _End) -> float:
        """Return the KV cache per host with this overhead of the engine (may be negative)."""
        overhead = self.overhead(end).gib
        most = self.limit - overhead - self.serving.host_gib
        if self.pool is not None:
            inside = overhead if self.engine.counts_overhead else self.engine.image_cache_gib
            most = min(most, self.pool - inside)
        room_gib = most - self.weights_gib
        return room_gib if self.serving.kv_gib is None else min(room_gib, self.serving.kv_gib)

    def sequences(self, tokens: int | None = None) -> tuple[float, float]:
        """Return `sequence_gib` by the builds of the engine that keep the least and the most."""
        tokens = tokens or self.context or 0
        least_gib, copies = self.sequence_gib(tokens), self.engine.latent_copies
        return least_gib, least_gib if copies == 1 else self.sequence_gib(tokens, copies)

    def sequence_gib(self, tokens: int, latents: int = 1) -> float:
        """Return the KV cache and state of one sequence on one host, its draft's included.

        `latents` is how often the engine keeps the latent of MLA.
        """
        serving, layers = self.serving, self.layers()
        if self.engine.pages:
            total = sequence_bytes(layers, tokens, serving)
        else:
            size = element_bytes(serving.kv_dtype)
            step = self.engine.window_step and (serving.batched_tokens or self.engine.window_step)
            step = tokens if serving.keeps_whole_context else step
            total = sum(
                group.bytes_for(tokens, size, serving.tensor_parallel)
                for group in (
                    replace(group, window=group.window + step, latent=group.latent * latents)
                    for group in layers
                )
            )
        return total / serving.pipeline_parallel / GIB

    def states(self, *rooms: float) -> tuple[int, int] | None:
        """Return how many sequences' states go into so many GiB per host, for each of two rooms."""
        if not (self.engine.pages and self.countable):
            return None
        layers, parts = self.layers(), self.serving.pipeline_parallel
        worse, better = (state_blocks(layers, room * parts * GIB, self.serving) for room in rooms)
        return None if worse is None or better is None else (worse, better)

    def largest_context(self, room: float) -> int:
        """Return the longest context whose one sequence fits ``room`` GiB; 0 for none."""
        lengths = range((self.shapes.context if self.shapes else None) or 2**24)
        return bisect_right(lengths, room, key=lambda last: self.sequences(last + 1)[1])

    def layers(self) -> list[Layers]:
        """Return the model's layers, with its own head if that drafts, then those of its draft."""
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
        else:
            unknown += [
                f"the size of the type {dtype} ({key}) is not known"
                for key, dtype in unknown_types(self.serving).items()
            ]
        if self.countable and (gib := self.sequences())[0] < gib[1]:
            unknown.append(f"{self.engine.latent_reason}: up to {gib[1]:.1f} GiB a sequence")
        if self.engine.counts_overhead and self.profile_gib is None:
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
        self, worse: float, better: float, sequence_gib: float | None, most_gib: float | None
    ) -> tuple[Verdict, tuple[str, ...]]:
        if self.pool is not None and self.pool + self.beyond > self.limit:
            return "does not fit", (
                f"the engine may take {self.pool + self.beyond:.1f} GiB, and "
                f"{self.limit:.1f} GiB is the most that leaves the system its reserve",
            )
        needed_gib = sequence_gib or 0.0
        if better <= 0 or better < needed_gib:
            return "does not fit", (self.shortage(better, needed_gib),)
        if sequence_gib is None:
            return "unknown", ()
        if worse < (most_gib or needed_gib):
            shortage = self.shortage(worse, most_gib or needed_gib)
            return "tight", (f"in the worse observed case {shortage}",)
        return "fits", ()

    def shortage(self, room: float, needed_gib: float) -> str:
        if room <= 0:
            return (
                f"{self.weights_gib:.1f} GiB of weights per Spark leave no room for a KV cache: "
                f"{-room:.1f} GiB are missing"
            )
        return (
            f"one sequence of {self.context} tokens needs {needed_gib:.1f} GiB of KV cache and "
            f"{room:.1f} GiB are left"
        )

    def host_use(self, sequence_gib: float | None) -> float | None:
        """Return memory for the system, the engine's pool, and all beside it (better case)."""
        system = self.machine.gib("system_gib") + self.serving.host_gib
        overhead = self.overhead("low").gib
        if self.pool is not None:
            beside = self.beyond if self.engine.counts_overhead else overhead
            return system + self.pool + beside
        cache_gib = self.serving.kv_gib or sequence_gib
        return None if cache_gib is None else system + self.weights_gib + cache_gib + overhead
