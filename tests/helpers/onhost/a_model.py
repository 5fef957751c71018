"""One model of a host: as models.json has it, and as a program of the host reads it."""

import json
from typing import Any

from lockstep.onhost.core.config import Model
from lockstep.onhost.core.layout import Paths

#: An address at which nothing answers.
NOWHERE = "http://127.0.0.1:9"


def about(**keys: Any) -> dict[str, Any]:
    """The entry of models.json: its required keys, and these keys."""
    least = {"unit": "vllm-qwen36.service", "url": NOWHERE, "served_name": "qwen", "sense": "off"}
    return {**least, "memory_gib": 67.0, "start_timeout_s": 1800, **keys}


def model(name: str = "qwen", **keys: Any) -> Model:
    """The model as a program of the host reads it."""
    return Model(name, **about(**keys))


def tell(paths: Paths, **keys: Any) -> None:
    """Add this to the models.json of a host."""
    paths.models.write_text(json.dumps({**json.loads(paths.models.read_text()), **keys}))
