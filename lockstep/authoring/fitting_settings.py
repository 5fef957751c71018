"""The context, the share of memory and the number of Sparks with which given weights fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from lockstep.checkpoints.architecture import Architecture
from lockstep.checkpoints.known_checkpoints import USUAL
from lockstep.fit.catalogue import Catalogue
from lockstep.fit.fit import Fit, Verdict, checkpoint_of, prepare
from lockstep.onhost.engines import Engine
from lockstep.recipes.placeholders import engine_of
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.sizing import Serving, serving

# In tokens: the longest context to try, the shortest that satisfies a person, the shortest to try.
_LONGEST, _PLEASANT, _SHORTEST = 262144, 32768, 8192
_STEP = 0.05


@dataclass(frozen=True)
class FittingSettings:
    """Settings with which a recipe fits.

    Attributes:
        share: Share of the memory for the engine; None: the engine knows no share.
        context: Longest sequence, tokens; None: the shapes are unknown and the engine decides.
        tensor: Sparks that split each layer.
        pipeline: Sparks that split the layers among them.
        fit: The fit computed for these settings.
    """

    share: float | None
    context: int | None
    tensor: int
    pipeline: int
    fit: Fit

    @property
    def hosts(self) -> int:
        """The number of Sparks that serve the model together."""
        return self.tensor * self.pipeline


def find_settings(
    recipe: Recipe, catalogue: Catalogue, machine: str = USUAL
) -> FittingSettings | Fit:
    """Find the longest context on the fewest Sparks.

    Of the shares that hold 262144 tokens in all, in sequences of that context, the function takes
    the share that needs the least memory at a start, because the memory gate admits it soonest. A
    context of at least 32768 tokens that is in doubt (a tight fit) goes before a shorter one that
    is certain. No share is above the shares that the catalogue's recipes give to the engine.

    Returns:
        The settings; if eight Sparks are too few, the fit of the shortest context on one Spark.
    """
    knowledge = catalogue.knowledge
    shapes = checkpoint_of(recipe, knowledge).architecture
    judge, own_serving = prepare(recipe, knowledge, machine=machine), serving(recipe)
    engine = engine_of(recipe)
    highest = min(
        knowledge.hardware[machine].gib("highest_utilization"), _most_given(engine, catalogue)
    )
    steps = range(2, int(highest / _STEP + 1e-9) + 1)
    shares: Sequence[float | None] = [round(step * _STEP, 2) for step in steps]
    shares = shares if engine.share else [None]
    contexts = list(_contexts(shapes.context if shapes else None))
    pleasant = [
        tried_context
        for tried_context in contexts
        if tried_context is None or tried_context >= _PLEASANT
    ] or contexts[:1]
    passes: list[tuple[list[int | None], tuple[Verdict, ...]]] = [
        (pleasant, ("fits",)),
        (pleasant, ("tight", "unknown")),
        (contexts, ("fits", "tight", "unknown")),
    ]
    for hosts in (1, 2, 4, 8) if engine.spans_hosts else (1,):
        for tensor, pipeline in ((hosts, 1), (1, hosts))[: 1 if hosts == 1 else 2]:
            if not _splits(shapes, tensor):
                continue
            spread = replace(own_serving, tensor_parallel=tensor, pipeline_parallel=pipeline)
            for share, verdicts in passes:
                for context in share:
                    best = _best(judge, replace(spread, context=context), shares, verdicts)
                    if best:
                        return FittingSettings(best[0], context, tensor, pipeline, best[1])
    return judge(replace(own_serving, context=contexts[-1], utilization=shares[-1]))


def _most_given(engine: Engine, catalogue: Catalogue) -> float:
    """Return the largest share that a recipe of the catalogue gives to an engine on one host."""
    alike = [
        serving(recipe).utilization or 0.0
        for recipe in catalogue.recipes.values()
        if recipe.engine is engine and recipe.min_nodes == 1 and recipe.lockstep.known_bad is None
    ]
    return max(alike, default=0.0)


def _contexts(own: int | None) -> Iterator[int | None]:
    """Yield the model's own context, then its halves, each a multiple of 1024 tokens."""
    if own is None:
        yield None
        return
    context = min(own, _LONGEST)
    yield context
    while (context := context // 2 // 1024 * 1024) >= _SHORTEST:
        yield context


def _splits(shapes: Architecture | None, tensor: int) -> bool:
    """Tell whether so many hosts can split each layer, as far as the shapes are known."""
    heads = [group.kv_heads for group in shapes.layers if group.kv_heads] if shapes else []
    even = all(head % tensor == 0 or tensor % head == 0 for head in heads)
    return even and not (shapes and shapes.heads and shapes.heads % tensor)


def _best(
    judge: Callable[[Serving | None], Fit],
    serving: Serving,
    shares: Sequence[float | None],
    verdicts: tuple[Verdict, ...],
) -> tuple[float | None, Fit] | None:
    answers = [(share, judge(replace(serving, utilization=share))) for share in shares]
    good = [(share, answer) for share, answer in answers if answer.verdict in verdicts]
    if not good:
        return None
    if good[-1][1].verdict == "unknown":
        # The memory of a sequence is unknown here, so the engine gets the largest share.
        return good[-1]
    whole = -(-_LONGEST // (serving.context or _LONGEST))
    ample = [candidate for candidate in good if (candidate[1].sequences or 0) >= whole]
    return min(ample or good[-1:], key=lambda candidate: candidate[1].needs_gib)
