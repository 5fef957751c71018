"""Settings that a test can change: by the environment, by a file, and over HTTP while it runs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from .corruption import CORRUPTIONS

#: Shared by a stand-in Spark and its containers, so a test can turn knobs before a start.
KNOBS_FOLDER = Path("/run/unified-memory")
PREFIX = "STANDIN_"


@dataclass
class Knobs:
    """Every knob with its usual position.

    Times are in seconds from the start of the process, memory in GiB, rates in tokens per second.
    """

    #: How long loading the weights takes.
    load_seconds: float = 2.0
    #: Load for ever.
    never_ready: bool = False
    #: End after so many seconds, ready or not; 0 means never.
    crash_after: float = 0.0
    #: End when the weights are half loaded.
    crash_while_loading: bool = False
    #: The exit code of `crash_after` and `crash_while_loading`.
    exit_code: int = 1
    #: Freeze the host when loading begins: its power is gone until somebody gives it.
    freezes_host: bool = False
    #: Ignore SIGTERM, as a stuck engine does.
    ignore_sigterm: bool = False
    #: How long an orderly end takes.
    stop_seconds: float = 0.2
    #: Unified memory to take; 0 means the fraction that the command line asks for.
    memory_gib: float = 0.0
    #: Unified memory available at the start; 0 means the figure of /proc/meminfo.
    available_gib: float = 0.0
    #: Memory that loading reads through the page cache.
    streamed_gib: float = 0.0
    #: MemFree without which the driver finds no blocks, and loading stands still.
    blocks_gib: float = 0.0
    #: How long the memory stays taken after the end.
    memory_lingers: float = 0.0
    #: Accept requests and generate nothing, with /health as green as the real engine's.
    is_wedged: bool = False
    #: Decode rate of one request.
    decode_rate: float = 200.0
    #: Answer with no text although tokens are counted.
    empty_text: bool = False
    #: Leave `usage` out of the answers.
    no_usage: bool = False
    #: Refuse requests that the model's chat template refuses.
    check_template: bool = True
    #: Refuse to start without the model's files in the cache, as a real engine does offline.
    need_model: bool = True
    #: Tell Mistral's format by the files alone, as SGLang before its PR 21620 (2026-03-30).
    old_mistral_format: bool = False
    #: Refuse to start where the real engine's arithmetic leaves no memory.
    need_memory: bool = True
    #: Share of drafted tokens that are accepted.
    acceptance: float = 0.6
    #: Refuse options of the chat template, as vLLM does with Mistral's own tokenizer.
    refuse_template: bool = False
    #: Refuse to give log-probabilities.
    refuse_logprobs: bool = False
    #: Think, whatever the request says.
    always_thinks: bool = False
    #: End while CUDA graphs are captured, as with a kernel whose PTX is newer than the driver.
    unsupported_ptx: bool = False
    #: Corruption of its answers, a name of `corruption.CORRUPTIONS`; "" means none.
    corruption: str = ""

    #: Fault of each vector: "nan", "length", "constant" or "shifted".
    broken_vector: str = ""
    #: Rank the worst text first.
    wrong_order: bool = False

    def turn(self, values: Mapping[str, object]) -> None:
        """Set some knobs; ``ValueError`` names one that does not exist or a value that is wrong.

        Nothing is changed when one of them is wrong.
        """
        kinds = {field.name: type(field.default) for field in fields(self)}
        unknown = sorted(set(values) - set(kinds))
        if unknown:
            raise ValueError(f"unknown knob {unknown[0]}; there are {', '.join(sorted(kinds))}")
        new_values = {name: _convert(name, kinds[name], value) for name, value in values.items()}
        for name, value in new_values.items():
            setattr(self, name, value)


def _convert(name: str, kind: type, value: object) -> object:
    if kind is bool:
        words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
        word = str(value).lower()
        if word not in words:
            raise ValueError(f"knob {name} is on (1) or off (0), found {value!r}")
        return words[word]
    if name == "corruption" and value not in ("", *CORRUPTIONS):
        raise ValueError(f"knob {name} is one of {', '.join(CORRUPTIONS)}, found {value!r}")
    try:
        return kind(str(value))
    except ValueError:
        raise ValueError(f"knob {name} is a number, found {value!r}") from None


def initial_knobs(engine: str) -> Knobs:
    """Usual positions, then the environment (``STANDIN_LOAD_SECONDS=5``), then the knob file.

    The file is ``standin-vllm.json`` or ``standin-sglang.json`` in ``KNOBS_FOLDER`` (or in the
    folder that ``STANDIN_KNOBS_FOLDER`` names).
    """
    knobs = Knobs()
    names = {field.name for field in fields(Knobs)}
    environment = {
        name: os.environ[PREFIX + name.upper()]
        for name in names
        if PREFIX + name.upper() in os.environ
    }
    knobs.turn(environment)
    folder = Path(os.environ.get("STANDIN_KNOBS_FOLDER", KNOBS_FOLDER))
    file = folder / f"standin-{engine}.json"
    if file.is_file():
        knobs.turn(json.loads(file.read_text()))
    return knobs
