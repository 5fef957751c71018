"""The part of its share that vLLM keeps beside weights and KV cache, from a model's shapes.

Before vLLM shares out a KV cache, it runs one full step with all sequences and keeps back the peak
of that run: the largest of a few sums, each of one part of the run. They were read off the
allocations at that peak and in the code of vLLM 0.26.0, on one H200, 2026-11-28. The runner that a
newer version takes was read in the code of 0.22.1 to 0.33.0. docs/evidence/cuda.md has the starts.
Figures called fitted hold for the kinds of model that were started. There is no answer for others.
"""

from __future__ import annotations

from packaging.version import Version

from lockstep.checkpoints.architecture import Architecture
from lockstep.checkpoints.known_checkpoints import GIB
from lockstep.checkpoints.step import ForwardStep
from lockstep.fit.pages import BATCHED_TOKENS, BLOCK, SEQUENCES
from lockstep.recipes.sizing import Serving

SOURCE = "computed as vLLM's profile run holds it (`lockstep help evidence/cuda`)"
_MIB = 2**20
# The sampler of the first runner holds logits in 16 and in 32 bits, probabilities and noise, and a
# row of words for each multiprocessor of a Hopper that filters them. With a draft it is 30, fitted.
_SAMPLED, _DRAFTED, _PROCESSORS = 14, 30, 132
# cuBLAS keeps a workspace, and compiled layers one more.
_CUBLAS, _COMPILED = 32 * _MIB, 60 * _MIB
# The most tokens of context that MLA unpacks; tokens of the largest picture of Qwen.
_UNPACKED, _PICTURE = 65536, 16384
# An EAGLE-3 draft beside a dense model, fitted to widths 1024 and 4096 of one table of words:
# constant bytes, bytes for each element of that table, and for each token and element of the width.
_EAGLE, _EAGLE_WORD, _EAGLE_TOKEN, _EAGLE_STEP = 0.365e9, 1.57, 20, 32.7
# Outside PyTorch, as its log says: 0.22 to 0.26 GiB; 0.16 where nothing is sampled.
_OUTSIDE_GIB, _UNSAMPLED_GIB = 0.23, 0.16
# An encoder of pictures that was not read; Mistral Small 4 and Gemma 4 have one.
_PICTURES_GIB = 0.5


def overhead_gib(
    shapes: Architecture, serving: Serving, *, vision: bool | None, workspace: bool = True
) -> float | None:
    """Return what vLLM keeps beside weights and KV cache, GiB; None where that is not known.

    The answer is the most of all runners that the engine's version may use. `vision`: whether the
    model sees pictures; None takes a mixture for one that does. `workspace`: whether its experts
    keep a workspace.
    """
    if (
        serving.hosts > 1
        or shapes.step is None
        or shapes.vocabulary is None
        or shapes.width is None
    ):
        return None
    sees = (not shapes.dense) if vision is None else vision
    runner_sizes = [
        _profile_bytes(shapes, serving, runner, sees, workspace)
        for runner in runners(shapes, serving)
    ]
    known_sizes = [size for size in runner_sizes if size is not None]
    return (max(known_sizes) + 2 * shapes.step.loaded_elements) / GIB if known_sizes else None


def runners(shapes: Architecture, asked: Serving) -> tuple[int, ...]:
    """Return vLLM's model runners that may serve it: the first, the second, or both if unknown.

    Read in `VllmConfig.use_v2_model_runner`. From 0.29 on, all but n-grams have the second. From
    0.25 on, hybrids and mixtures have the first, but for a few (`Step.second`), as has a model that
    samples no token. Before, few models have the second, by their names.
    """
    if asked.runner:
        return (asked.runner,)
    if asked.speculative == "ngram":
        return (1,)
    hybrid = any(group.kind == "recurrent" for group in shapes.layers)
    has_second_runner = shapes.step is not None and shapes.step.second
    old = 2 if asked.kind == "chat" and not hybrid and (shapes.dense or has_second_runner) else 1
    if asked.release is None:
        return (old,) if old == 2 else (1, 2)
    if _since(asked, "0.29"):
        return (2,)
    return (old,) if old == 1 or _since(asked, "0.25") else (1, 2)


def blind(asked: Serving) -> bool:
    """Tell whether the second runner's profile sees no graphs: before 0.30, or unknown version."""
    return asked.release is None or not _since(asked, "0.30")


def _profile_bytes(
    shapes: Architecture, asked: Serving, runner: int, sees: bool, workspace: bool
) -> float | None:
    """Return the bytes that one runner holds; None for a draft that was not measured with it."""
    step, draft_kind = shapes.step, asked.speculative
    assert step is not None
    has_graphs = runner == 1 or _since(asked, "0.30")
    beside = (_OUTSIDE_GIB if asked.kind == "chat" else _UNSAMPLED_GIB) * GIB
    if has_graphs and asked.kind == "chat":
        beside += graphs(shapes, asked)
    if draft_kind and runner == 2:
        plain = shapes.dense and not sees and {group.kind for group in shapes.layers} == {"full"}
        if draft_kind != "eagle3" or not plain:
            return None
    elif draft_kind and draft_kind not in ("ngram", "mtp", "dflash"):
        return None
    return peak(shapes, asked, runner, sees, workspace) + beside


def peak(
    shapes: Architecture, asked: Serving, runner: int, sees: bool = False, workspace: bool = True
) -> float:
    """Return the peak of the profile in one runner, bytes."""
    step, words, width = shapes.step, shapes.vocabulary or 0, shapes.width or 0
    assert step is not None
    tokens = asked.batched_tokens or BATCHED_TOKENS
    if asked.speculative == "eagle3":
        table, token_width = words * width, width * tokens
        return max(
            _EAGLE + _EAGLE_WORD * table + _EAGLE_TOKEN * token_width, _EAGLE_STEP * token_width
        )
    sequences = min(asked.sequences or SEQUENCES, tokens)
    resident_bytes = 2 * step.workspace * tokens * workspace + _CUBLAS
    sees_pictures = sees and (runner == 1 or _since(asked, "0.27"))
    patches = step.patches * max(tokens, _PICTURE) * sees_pictures
    resident_bytes += 2 * step.patch * patches
    sums: list[float] = [
        resident_bytes + 2 * tokens * (step.eager_layer if asked.eager else step.compiled_layer),
        2 * step.sight * patches,
        resident_bytes
        + 2 * tokens * (step.beside + width * asked.eager)
        + 2 * step.unpacked_context * _context(shapes, asked, sequences),
    ]
    if not asked.eager:
        sums[0] += _COMPILED
        # Pictures are put in from outside, so the table of words is no part of what is compiled.
        sums.append(0 if sees else 2 * words * width + 4 * width * tokens)
    if asked.kind == "chat":
        sums.append(
            resident_bytes
            + 2 * width * tokens
            + _sampler(step, sequences, words, width, asked, runner)
        )
    return max(sums) + (_PICTURES_GIB * GIB if sees_pictures and not step.patches else 0)


def _sampler(
    step: ForwardStep, sequences: int, words: int, width: int, asked: Serving, runner: int
) -> float:
    """Return the bytes of one token's logits for all sequences, and of all computed from them."""
    if runner == 2:
        return (4 if step.has_soft_cap else 2) * sequences * words
    word_bytes = _DRAFTED if asked.speculative else _SAMPLED
    filter_bytes = 4 * min(sequences, _PROCESSORS) * words
    return word_bytes * sequences * words + filter_bytes + 4 * sequences * width


def _context(shapes: Architecture, asked: Serving, sequences: int) -> int:
    """Return the tokens that MLA unpacks at once (`determine_chunked_prefill_workspace_size`)."""
    longest = asked.context or shapes.context or _UNPACKED
    return max(min(max(8 * longest, 4 * sequences * BLOCK), _UNPACKED), sequences * BLOCK)


def graphs(shapes: Architecture, asked: Serving) -> float:
    """Return a runner's estimate of its CUDA graphs, bytes (`profile_cudagraph_memory`).

    Batches of 1, 2, 4, then every 8 up to 256 and every 16 up to 512, twice the sequences at most.
    The first capture of a whole step splits each sequence into 32 parts of 32 bits; of a piece it
    takes 64 to 180 MiB. Each further one takes 1 MiB, and 0.2 for a layer: fitted to nine starts.
    """
    if asked.eager or shapes.step is None:
        return 0.0
    sequences = asked.sequences or SEQUENCES
    pieces, whole = min(2 * sequences, 512), min(sequences, 512)
    first = max(64 * _MIB + 0.17 * _MIB * pieces, 32 * 4 * shapes.step.queries * whole)
    graph_bytes = max(1.0, 0.2 * sum(group.count for group in shapes.layers)) * _MIB
    return first + (_capture_count(pieces) - 1) * graph_bytes + (_capture_count(whole) - 1) * _MIB


def _capture_count(largest: int) -> int:
    """Return how many batches up to this one have a graph captured."""
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, 513, 16)]
    return sum(size <= largest for size in sizes)


def _since(asked: Serving, release: str) -> bool:
    """Tell whether the engine is of this version or newer; an unknown version may be."""
    return asked.release is None or Version(asked.release) >= Version(release)
