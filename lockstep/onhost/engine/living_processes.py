"""Processes of an engine that counts as stopped, as the kernel alone lists them.

systemd calls a unit inactive even if its process survived SIGKILL, and Docker may not answer. Gate,
switch and port look at the same control groups.
"""

from __future__ import annotations

from lockstep.onhost.core import config, layout
from lockstep.onhost.docker import container_processes
from lockstep.onhost.systemd import units


def processes_of_model(model: config.Model, paths: layout.Paths) -> list[int]:
    """Return the process ids in the control groups of a model's unit and of its container."""
    return [
        *units.processes(model.unit, paths.proc),
        *container_processes.process_ids_of_container(model.container, paths),
    ]


def leftover_process_texts(model: config.Model, paths: layout.Paths) -> list[str]:
    """Describe in words the living processes of a model whose unit is stopped."""
    sentences = []
    if process_ids := units.processes(model.unit, paths.proc):
        sentences.append(f"processes {', '.join(map(str, process_ids))} of stopped {model.unit}")
    if inside := container_processes.process_ids_of_container(model.container, paths):
        sentences.append(
            f"processes {', '.join(map(str, inside))} in container {model.container} "
            f"outlived {model.unit}"
        )
    return sentences
