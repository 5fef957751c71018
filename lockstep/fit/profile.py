"""What vLLM keeps of its share beside weights and KV cache, from the shapes of a model.

Before it shares out a KV cache it runs one full step with all sequences, and keeps back the peak of
that run: the largest of a few sums, each of one part of the run. They were read off the allocations
at that peak and in the code of vLLM 0.26.0, on one H200, 2026-11-28; which runner a newer version
takes, in the code of 0.22.1 to 0.33.0. docs/evidence/cuda.md has the starts. What is said to be
fitted holds for the kinds of model that were started. There is no answer for others.
"""

from __future__ import annotations

from packaging.version import Version

from lockstep.fit.pages import BATCHED_TOKENS, BLOCK, SEQUENCES
from lockstep.models.architecture import Architecture
from lockstep.models.known_models import GIB
from lockstep.models.step import Step
from lockstep.recipes.sizing import Serving

SOURCE = "computed as vLLM's profile run holds it (`lockstep help evidence/cuda`)"
_MIB = 2**20
# The sampler of the first runner holds logits in 16 and in 32 bits, probabilities and noise, and a
# row of words for each multiprocessor of a Hopper that filters them. With a draft 30, fitted.
_SAMPLED, _DRAFTED, _PROCESSORS = 14, 30, 132
# cuBLAS keeps a workspace, and compiled layers one more.
_CUBLAS, _COMPILED = 32 * _MIB, 60 * _MIB
# Tokens of context that MLA unpacks at most, and those that the largest picture of Qwen's becomes.
_UNPACKED, _PICTURE = 65536, 16384
# An EAGLE-3 draft beside a dense model, fitted to widths 1024 and 4096 of one table of words:
# bytes at all, for each element of that table, and for each token and element of the width.
_EAGLE, _EAGLE_WORD, _EAGLE_TOKEN, _EAGLE_STEP = 0.365e9, 1.57, 20, 32.7
# Outside PyTorch, as its log says: 0.22 to 0.26 GiB; 0.16 where nothing is sampled.
_OUTSIDE_GIB, _UNSAMPLED_GIB = 0.23, 0.16
# For an encoder of pictures that was not read; Mistral Small 4 and Gemma 4 have one.
_PICTURES_GIB = 0.5


def overhead_gib(
    shapes: Architecture, asked: Serving, *, vision: bool | None, workspace: bool = True
) -> float | None:
    """What vLLM keeps beside weights and KV cache, GiB; None for what is not known.

    `vision`: whether the model sees pictures; a mixture of which nobody said it does. `workspace`:
    whether its experts keep one. The most of all runners that the engine's version may give it.
    """
    if asked.hosts > 1 or shapes.step is None or shapes.vocabulary is None or shapes.width is None:
        return None
    sees = (not shapes.dense) if vision is None else vision
    held = [
        _profile_bytes(shapes, asked, runner, sees, workspace) for runner in runners(shapes, asked)
    ]
    known = [each for each in held if each is not None]
    return (max(known) + 2 * shapes.step.loaded) / GIB if known else None


def runners(shapes: Architecture, asked: Serving) -> tuple[int, ...]:
    """vLLM's model runners that may serve it: the first, the second, or both where not known.

    Read in `VllmConfig.use_v2_model_runner`: from 0.29 on all but n-grams have the second; from
    0.25 on hybrids and mixtures have the first, but for a few (`Step.second`), and what samples no
    token; before, few models have the second, by their names.
    """
    if asked.runner:
        return (asked.runner,)
    if asked.speculative == "ngram":
        return (1,)
    hybrid = any(group.kind == "recurrent" for group in shapes.layers)
    chosen = shapes.step is not None and shapes.step.second
    old = 2 if asked.kind == "chat" and not hybrid and (shapes.dense or chosen) else 1
    if asked.release is None:
        return (old,) if old == 2 else (1, 2)
    if _since(asked, "0.29"):
        return (2,)
    return (old,) if old == 1 or _since(asked, "0.25") else (1, 2)


def blind(asked: Serving) -> bool:
    """Whether the profile of the second runner sees no graphs: before 0.30, or not known."""
    return asked.release is None or not _since(asked, "0.30")


def _profile_bytes(
    shapes: Architecture, asked: Serving, runner: int, sees: bool, workspace: bool
) -> float | None:
    """Bytes that one runner holds; None for a draft that was not measured with it."""
    step, drafted = shapes.step, asked.speculative
    assert step is not None
    graphed = runner == 1 or _since(asked, "0.30")
    beside = (_OUTSIDE_GIB if asked.kind == "chat" else _UNSAMPLED_GIB) * GIB
    if graphed and asked.kind == "chat":
        beside += graphs(shapes, asked)
    if drafted and runner == 2:
        plain = shapes.dense and not sees and {group.kind for group in shapes.layers} == {"full"}
        if drafted != "eagle3" or not plain:
            return None
    elif drafted and drafted not in ("ngram", "mtp", "dflash"):
        return None
    return peak(shapes, asked, runner, sees, workspace) + beside


def peak(
    shapes: Architecture, asked: Serving, runner: int, sees: bool = False, workspace: bool = True
) -> float:
    """Peak of the profile in one runner, bytes."""
    step, words, width = shapes.step, shapes.vocabulary or 0, shapes.width or 0
    assert step is not None
    tokens = asked.batched_tokens or BATCHED_TOKENS
    if asked.speculative == "eagle3":
        table, each = words * width, width * tokens
        return max(_EAGLE + _EAGLE_WORD * table + _EAGLE_TOKEN * each, _EAGLE_STEP * each)
    sequences = min(asked.sequences or SEQUENCES, tokens)
    kept = 2 * step.workspace * tokens * workspace + _CUBLAS
    seen = sees and (runner == 1 or _since(asked, "0.27"))
    patches = step.patches * max(tokens, _PICTURE) * seen
    kept += 2 * step.patch * patches
    sums: list[float] = [
        kept + 2 * tokens * (step.eager if asked.eager else step.compiled),
        2 * step.sight * patches,
        kept
        + 2 * tokens * (step.beside + width * asked.eager)
        + 2 * step.unpacked * _context(shapes, asked, sequences),
    ]
    if not asked.eager:
        sums[0] += _COMPILED
        # Pictures are put in from outside, so the table of words is no part of what is compiled.
        sums.append(0 if sees else 2 * words * width + 4 * width * tokens)
    if asked.kind == "chat":
        sums.append(
            kept + 2 * width * tokens + _sampler(step, sequences, words, width, asked, runner)
        )
    return max(sums) + (_PICTURES_GIB * GIB if seen and not step.patches else 0)


def _sampler(
    step: Step, sequences: int, words: int, width: int, asked: Serving, runner: int
) -> float:
    """Bytes of one token's logits for all sequences, and of what is computed from them."""
    if runner == 2:
        return (4 if step.capped else 2) * sequences * words
    each = _DRAFTED if asked.speculative else _SAMPLED
    filtered = 4 * min(sequences, _PROCESSORS) * words
    return each * sequences * words + filtered + 4 * sequences * width


def _context(shapes: Architecture, asked: Serving, sequences: int) -> int:
    """Tokens that MLA unpacks at once (`determine_chunked_prefill_workspace_size`)."""
    longest = asked.context or shapes.context or _UNPACKED
    return max(min(max(8 * longest, 4 * sequences * BLOCK), _UNPACKED), sequences * BLOCK)


def graphs(shapes: Architecture, asked: Serving) -> float:
    """What a runner estimates that its CUDA graphs will take, bytes (`profile_cudagraph_memory`).

    Batches of 1, 2, 4, then every 8 up to 256 and every 16 up to 512, twice the sequences at most.
    The first capture of a whole step splits each sequence into 32 parts of 32 bits; of a piece it
    takes 64 to 180 MiB. Each further one takes 1 MiB, and 0.2 for a layer: fitted to nine starts.
    """
    if asked.eager or shapes.step is None:
        return 0.0
    sequences = asked.sequences or SEQUENCES
    pieces, whole = min(2 * sequences, 512), min(sequences, 512)
    first = max(64 * _MIB + 0.17 * _MIB * pieces, 32 * 4 * shapes.step.queries * whole)
    each = max(1.0, 0.2 * sum(group.count for group in shapes.layers)) * _MIB
    return first + (_captured(pieces) - 1) * each + (_captured(whole) - 1) * _MIB


def _captured(largest: int) -> int:
    """Batches up to this one of which a graph is captured."""
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, 513, 16)]
    return sum(size <= largest for size in sizes)


def _since(asked: Serving, release: str) -> bool:
    """Whether the engine is of this version or newer, which one of unknown version may be."""
    return asked.release is None or Version(asked.release) >= Version(release)
