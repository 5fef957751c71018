"""One word for a way to store weights, from the text of checkpoints and recipes."""

from __future__ import annotations

# Word → parts of such a text; the first one that is found counts.
_SCHEMES = (
    ("gguf", ("gguf",)),
    ("nvfp4", ("nvfp4",)),
    ("mxfp4", ("mxfp4",)),
    ("int4", ("int4", "awq", "gptq", "auto-round", "autoround", "w4a16")),
    ("fp8", ("fp8", "float-quantized")),
    ("int4", ("pack-quantized",)),
    ("none", ("none", "bfloat16", "bf16", "float16", "fp16")),
)


def scheme_of(text: str) -> str:
    """Return the word for how weights are stored, "" for a way without a word here."""
    lower = text.lower()
    return next((name for name, words in _SCHEMES if any(word in lower for word in words)), "")
