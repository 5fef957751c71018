"""One model of a host: as targets.json says it, and as a program of the host reads that."""

from __future__ import annotations

from typing import Any

from lockstep.onhost.core.config import Target

#: An address at which nothing answers.
NOWHERE = "http://127.0.0.1:9"


def about(**keys: Any) -> dict[str, Any]:
    """What targets.json says of it: what it must say, and these keys."""
    least = {"unit": "vllm-qwen36.service", "url": NOWHERE, "model": "qwen"}
    return {**least, "memory_gib": 67.0, "start_timeout_s": 1800, **keys}


def target(name: str = "qwen", **keys: Any) -> Target:
    """The same as a program of the host has it."""
    return Target(name, **about(**keys))
