"""What vLLM keeps of its share beside weights and KV cache, from sequences, tokens and widths.

Before it shares out a KV cache it runs one full step with all sequences, and keeps back the peak of
that run. The peak is the largest of a few sums, and each belongs to one part of the run. Every
figure is of vLLM 0.26.0 on one H200, read from its log or from PyTorch, 2026-11-22 to 2026-11-24;
docs/evidence/cuda.md has the starts. What is said to be fitted holds for the kinds of model that
were started, on one host. There is no answer for others.
"""

from __future__ import annotations

from lockstep.fit.pages import BATCHED_TOKENS, SEQUENCES
from lockstep.models.architecture import Architecture
from lockstep.models.known_models import GIB
from lockstep.recipes.sizing import Serving

SOURCE = "rules fitted to starts of vLLM 0.26.0 on an H200, 2026-11 (`lockstep help evidence/cuda`)"
# The sampler of the first runner holds logits in 16 and in 32 bits, probabilities and noise: 14
# bytes for each sequence and word, read in its code. With a draft 30, fitted; so is the rest.
_SAMPLED, _DRAFTED, _SAMPLER = 14, 30, 0.19e9
# Bytes of a step for each token and element of the width of a dense model, fitted.
_DENSE_STEP = 24.7
# Kind of layer, width and experts of a token -> (bytes, bytes a token) of a step, fitted. The first
# is Qwen3.6-35B-A3B, the second Mistral Small 4: it has a workspace for 65,536 tokens of its cache.
_STEPS = {
    ("recurrent", 2048, 8): ((0.03e9, 150.5e3),),
    ("mla", 4096, 4): ((0.84e9, 91e3), (0.0, 136.7e3)),
    # Gemma 4 26B-A4B with an FP8 cache, which its recipe gives to the second runner.
    ("sliding", 2816, 8): ((0.0, 150.2e3),),
}
# An EAGLE-3 draft beside a dense model, fitted to widths 1024 and 4096 of one table of words:
# bytes at all, for each element of that table, and for each token and element of the width.
_EAGLE, _EAGLE_WORD, _EAGLE_TOKEN, _EAGLE_STEP = 0.365e9, 1.57, 20, 32.7
# Outside PyTorch, as its log says: 0.22 to 0.26 GiB.
_OUTSIDE_GIB = 0.24
# Beside the peak of one model with and without pictures, its draft's head included: 0.3 to 0.7 GiB.
_PICTURES_GIB = 0.5


def overhead_gib(shapes: Architecture, asked: Serving, *, vision: bool | None) -> float | None:
    """What vLLM keeps beside weights and KV cache, GiB; None for what was not measured.

    `vision`: whether the model sees pictures. A mixture of which nobody said it does, as those that
    were started do.
    """
    if asked.hosts > 1 or asked.kind != "chat":
        return None
    if any(group.kind == "sliding" for group in shapes.layers):
        if asked.speculative is not None:
            return None
        peak = second_runner(shapes, asked)
        beside = 0.0 if vision is False else _PICTURES_GIB
    elif not shapes.dense:
        peak = first_runner(shapes, asked)
        beside = graphs_gib(asked) + (0.0 if vision is False else _PICTURES_GIB)
    elif not vision and asked.speculative in (None, "eagle3"):
        peak, beside = second_runner(shapes, asked), 0.0
    elif not vision and asked.speculative == "ngram":
        peak, beside = first_runner(shapes, asked), graphs_gib(asked)
    else:
        return None
    return None if peak is None else peak / GIB + _OUTSIDE_GIB + beside


def first_runner(shapes: Architecture, asked: Serving) -> float | None:
    """Peak of the profile, bytes: vLLM's first model runner, of mixtures and n-grams.

    The sampler stands beside the workspace of the experts, which is kept: 4 bytes for each token,
    element of the width and expert of a token. With few sequences a dense model holds more in a
    copy of its table of words.
    """
    steps = _steps(shapes)
    if not steps or shapes.vocabulary is None or shapes.width is None:
        return None
    tokens, sequences = asked.batched_tokens or BATCHED_TOKENS, asked.sequences or SEQUENCES
    word = _DRAFTED if asked.speculative else _SAMPLED
    workspace = 4 * (shapes.experts or 0) * shapes.width * tokens
    sampler = word * sequences * shapes.vocabulary + workspace + _SAMPLER
    # As in the second runner: Qwen3-8B with n-grams and 64 sequences held it, 2026-11-25.
    words = _words(shapes.vocabulary, shapes.width, tokens) if shapes.dense else 0
    return max(sampler, words, *(once + each * tokens for once, each in steps))


def second_runner(shapes: Architecture, asked: Serving) -> float | None:
    """Peak of the profile, bytes: vLLM's second model runner, of a dense model or Gemma 4.

    It holds as much as a copy of the table of words, or a step. Sequences count only beside the
    workspace of experts: 4 bytes for each sequence and word. An EAGLE-3 draft adds to both.
    """
    steps = _steps(shapes)
    if not steps or shapes.vocabulary is None or shapes.width is None:
        return None
    tokens = asked.batched_tokens or BATCHED_TOKENS
    table, step = shapes.vocabulary * shapes.width, shapes.width * tokens
    if asked.speculative:
        return max(_EAGLE + _EAGLE_WORD * table + _EAGLE_TOKEN * step, _EAGLE_STEP * step)
    words = _words(shapes.vocabulary, shapes.width, tokens)
    if shapes.experts:
        sampled = 4 * (asked.sequences or SEQUENCES) * shapes.vocabulary
        words = max(words, 4 * shapes.experts * step + sampled + 4 * step)
    return max(words, *(once + each * tokens for once, each in steps))


def _words(vocabulary: int, width: int, tokens: int) -> int:
    """As much as a copy of the table of words, and 4 bytes for each element of a step; bytes."""
    return 2 * vocabulary * width + 4 * width * tokens


def graphs_gib(asked: Serving) -> float:
    """What the first runner estimates that its CUDA graphs will take, GiB.

    0.1 with 4 sequences and 0.5 with 1024, as its share less all else says. vLLM captures batches
    of 512 at most, twice the sequences, so it grows up to 256 of them.
    """
    return 0.1 + 0.4 * min(asked.sequences or SEQUENCES, 256) / 256


def _steps(shapes: Architecture) -> tuple[tuple[float, float], ...]:
    """What a step takes, (bytes, bytes a token) of each part; () for a kind not measured."""
    if shapes.width is None:
        return ()
    kinds = {group.kind for group in shapes.layers}
    if shapes.dense:
        return ((0.0, _DENSE_STEP * shapes.width),) if kinds == {"full"} else ()
    kind = next((kind for kind in ("recurrent", "mla", "sliding") if kind in kinds), "full")
    return _STEPS.get((kind, shapes.width, shapes.experts or 0), ())
