"""Context, share of the memory and number of Sparks with which some weights fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from lockstep.fit.catalogue import Catalogue
from lockstep.fit.fit import Fit, Verdict, model_of, prepare
from lockstep.models.architecture import Architecture
from lockstep.models.known_models import USUAL
from lockstep.onhost.engines import Engine
from lockstep.recipes.placeholders import engine_of
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.sizing import Serving, serving

# Longest context that is tried, the shortest that a person is content with, and the shortest.
_LONGEST, _PLEASANT, _SHORTEST = 262144, 32768, 8192
_STEP = 0.05


@dataclass(frozen=True)
class FittingSettings:
    """Settings with which a recipe fits.

    Attributes:
        share: Share of the memory for the engine; None: it knows no share.
        context: Longest sequence, tokens; None: the shapes are not known, the engine decides.
        tensor: Sparks that split each layer.
        pipeline: Sparks that split the layers among them.
        fit: What was computed for these.
    """

    share: float | None
    context: int | None
    tensor: int
    pipeline: int
    fit: Fit

    @property
    def hosts(self) -> int:
        """Sparks that it runs on together."""
        return self.tensor * self.pipeline


def find_settings(
    recipe: Recipe, catalogue: Catalogue, machine: str = USUAL
) -> FittingSettings | Fit:
    """The longest context on the fewest Sparks; where eight are too few, why one does not hold it.

    A context of 32768 tokens in doubt (a tight fit) goes before a shorter one that is certain. Of
    the shares that hold 262144 tokens in all, in sequences of that context, the one is taken that
    needs the least memory at a start: the memory gate admits it soonest. No share is above those
    that the catalogue's recipes give to the engine.
    """
    knowledge = catalogue.knowledge
    shapes = model_of(recipe, knowledge).architecture
    judge, asked = prepare(recipe, knowledge, machine=machine), serving(recipe)
    engine = engine_of(recipe)
    highest = min(
        knowledge.hardware[machine].gib("highest_utilization"), _most_given(engine, catalogue)
    )
    steps = range(2, int(highest / _STEP + 1e-9) + 1)
    shares: Sequence[float | None] = [round(step * _STEP, 2) for step in steps]
    shares = shares if engine.share else [None]
    contexts = list(_contexts(shapes.context if shapes else None))
    pleasant = [each for each in contexts if each is None or each >= _PLEASANT] or contexts[:1]
    passes: list[tuple[list[int | None], tuple[Verdict, ...]]] = [
        (pleasant, ("fits",)),
        (pleasant, ("tight", "unknown")),
        (contexts, ("fits", "tight", "unknown")),
    ]
    for hosts in (1, 2, 4, 8) if engine.spans_hosts else (1,):
        for tensor, pipeline in ((hosts, 1), (1, hosts))[: 1 if hosts == 1 else 2]:
            if not _splits(shapes, tensor):
                continue
            spread = replace(asked, tensor_parallel=tensor, pipeline_parallel=pipeline)
            for tried, verdicts in passes:
                for context in tried:
                    found = _best(judge, replace(spread, context=context), shares, verdicts)
                    if found:
                        return FittingSettings(found[0], context, tensor, pipeline, found[1])
    return judge(replace(asked, context=contexts[-1], utilization=shares[-1]))


def _most_given(engine: Engine, catalogue: Catalogue) -> float:
    """The largest share that a recipe of the catalogue gives to an engine on one host."""
    alike = [
        serving(each).utilization or 0.0
        for each in catalogue.recipes.values()
        if each.engine is engine and each.min_nodes == 1 and each.lockstep.known_bad is None
    ]
    return max(alike, default=0.0)


def _contexts(own: int | None) -> Iterator[int | None]:
    """The model's own context and its halves, each a whole number of thousands of tokens."""
    if own is None:
        yield None
        return
    context = min(own, _LONGEST)
    yield context
    while (context := context // 2 // 1024 * 1024) >= _SHORTEST:
        yield context


def _splits(shapes: Architecture | None, tensor: int) -> bool:
    """Whether so many hosts can share each layer, as far as that is known."""
    heads = [group.kv_heads for group in shapes.layers if group.kv_heads] if shapes else []
    even = all(each % tensor == 0 or tensor % each == 0 for each in heads)
    return even and not (shapes and shapes.heads and shapes.heads % tensor)


def _best(
    judge: Callable[[Serving | None], Fit],
    asked: Serving,
    shares: Sequence[float | None],
    verdicts: tuple[Verdict, ...],
) -> tuple[float | None, Fit] | None:
    answers = [(share, judge(replace(asked, utilization=share))) for share in shares]
    good = [(share, answer) for share, answer in answers if answer.verdict in verdicts]
    if not good:
        return None
    if good[-1][1].verdict == "unknown":
        # Nobody can say how much a sequence takes: as much as may be given.
        return good[-1]
    whole = -(-_LONGEST // (asked.context or _LONGEST))
    ample = [each for each in good if (each[1].sequences or 0) >= whole]
    return min(ample or good[-1:], key=lambda each: each[1].needs_gib)
