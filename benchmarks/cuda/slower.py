"""A vLLM plugin that lengthens each step of the engine, for as long as a file says so.

`python -m benchmarks.cuda` installs it beside the engine to plant a slow-down of a known size. The
file $LOCKSTEP_SLOWER holds the cycles for which the GPU itself is kept busy after each step, so
that nothing can hide them. Without the file nothing happens.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

VARIABLE = "LOCKSTEP_SLOWER"


def register() -> None:
    """Entry point of the group `vllm.general_plugins`; vLLM calls it in each of its processes."""
    import torch
    from vllm.v1.worker.gpu_worker import Worker

    file, execute = Path(os.environ[VARIABLE]), Worker.execute_model
    if getattr(execute, "may_be_slower", False):
        return

    def execute_model(worker: Any, *arguments: Any, **keyword_arguments: Any) -> Any:
        output = execute(worker, *arguments, **keyword_arguments)
        if file.exists():
            torch.cuda._sleep(int(file.read_text()))
        return output

    execute_model.may_be_slower = True  # type: ignore[attr-defined]
    Worker.execute_model = execute_model
