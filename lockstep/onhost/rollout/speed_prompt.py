"""The request by which `lockstep bench` and a deploy's speed check measure a speed.

Article 004: 256 tokens with a real technical prompt, one request at a time.
"""

from __future__ import annotations

TOKENS = 256
PROMPT = (
    "Explain in dense technical prose how a mixture-of-experts transformer with three billion "
    "active parameters decodes on a machine with 128 GiB of unified memory: what is read from "
    "memory for each token, where the router decides, what the key-value cache costs at long "
    "context, and why speculative decoding helps one user less than many. No lists, no headings, "
    "no introduction."
)
