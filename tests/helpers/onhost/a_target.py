"""One model of a host: as targets.json says it, and as a program of the host reads that."""

from __future__ import annotations

import json
from typing import Any

from lockstep.onhost.core.config import Target
from lockstep.onhost.core.layout import Paths

#: An address at which nothing answers.
NOWHERE = "http://127.0.0.1:9"


def about(**keys: Any) -> dict[str, Any]:
    """What targets.json says of it: what it must say, and these keys."""
    least = {"unit": "vllm-qwen36.service", "url": NOWHERE, "model": "qwen"}
    return {**least, "memory_gib": 67.0, "start_timeout_s": 1800, **keys}


def target(name: str = "qwen", **keys: Any) -> Target:
    """The same as a program of the host has it."""
    return Target(name, **about(**keys))


def tell(paths: Paths, **keys: Any) -> None:
    """Let targets.json of a host say this, too."""
    paths.targets.write_text(json.dumps({**json.loads(paths.targets.read_text()), **keys}))
