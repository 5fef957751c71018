"""Holders of memory on the GPU: the kernel charges it to no process, but the driver knows them.

nvidia-smi names each process, also on a GB10, whose totals are "Not Supported". The control group
of a process tells its container or unit. Those of a deploy are ours. Other programs that people run
on a Spark are recognised by the words in `KNOWN_PROGRAMS`, besides the engines of `onhost/engines`.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from lockstep.onhost import engines
from lockstep.onhost.core import config, errors, layout, runner
from lockstep.onhost.docker import docker_api
from lockstep.onhost.engine import foreign_engines

_QUERY = (
    "nvidia-smi",
    "--query-compute-apps=pid,process_name,used_memory",
    "--format=csv,noheader,nounits",
)
#: Seconds; a driver that hangs never answers.
LIMIT_S = 10.0
#: An unknown program is worth a finding beside a hot model if it holds this much. The system's own
#: manager was seen with 3.3 GB on a Spark at rest (article 002).
LEAST_GIB = 4.0
_MIB_PER_GIB = 1024
_CONTAINER = re.compile(r"(?:(?:docker|libpod)-|/docker/)([0-9a-f]{64})")


@dataclass(frozen=True)
class KnownProgram:
    """A program that people run on a Spark.

    Attributes:
        name: In sentences.
        words: Pattern for the text of a container, its image, a unit or a command line.
        remedy: How its own users stop it; "" if there is only the container or the unit to stop.
        engine: Whether it serves models, so that it may take much memory at any time.
    """

    name: str
    words: re.Pattern[str]
    remedy: str = ""
    engine: bool = True


def _make_known_program(
    name: str, words: str, remedy: str = "", engine: bool = True
) -> KnownProgram:
    return KnownProgram(name, re.compile(words, re.IGNORECASE), remedy, engine)


#: The first match wins, and these come before the engines of `onhost/engines`.
KNOWN_PROGRAMS = (
    # Container, image and port as in dgx-spark-playbooks, nvidia/playbook-vllm/assets (2026-10).
    _make_known_program(
        "NVIDIA Sync's vLLM",
        r"\bvllm-qwen36-35b-a3b\b",
        "stop it in NVIDIA Sync, tab Models (port 18765)",
    ),
    _make_known_program("Open WebUI's bundle with Ollama", r"open-webui:\S*ollama"),
    _make_known_program("Ollama", r"\bollama\b", "`ollama ps`, then `ollama stop MODEL`"),
    _make_known_program("LM Studio", r"lm[-_ ]?studio|\blms\b", "`lms unload --all`"),
    _make_known_program("ComfyUI", r"comfyui"),
    _make_known_program(
        "a text-to-speech engine", r"\btts\b|\bcsm\b|kokoro|xtts|chatterbox|orpheus|fish-speech"
    ),
    _make_known_program("a speech recogniser", r"whisper|parakeet|speaches|\briva\b"),
    _make_known_program("TensorRT-LLM", r"trtllm|tensorrt[-_]llm"),
    _make_known_program("a NIM", r"nvcr\.io/nim/"),
    _make_known_program("Triton Inference Server", r"tritonserver"),
    _make_known_program("an image generator", r"invokeai|stable-diffusion|fooocus"),
    _make_known_program("text-generation-webui", r"text-generation-webui"),
    _make_known_program("a notebook", r"ipykernel|jupyter", "shut its kernel down", engine=False),
    _make_known_program("the desktop", r"\bgnome-shell\b|\bXorg\b|\bXwayland\b", engine=False),
)


@dataclass(frozen=True)
class GpuHolder:
    """A container, a unit or a process that holds memory on the GPU.

    Attributes:
        place: The holder ("container ollama", "ollama.service", "python3, process 4711").
        gib: The memory that it holds; None if the driver does not tell.
        known_name: Its name in `KNOWN_PROGRAMS` or of its engine; "" for anything else.
        remedy: The way to stop it.
        engine: Whether it is known to serve models.
    """

    place: str
    gib: float | None
    known_name: str
    remedy: str
    engine: bool

    @property
    def is_worth_report(self) -> bool:
        """True if it is worth a report beside a hot model."""
        return self.engine or (self.gib or 0.0) >= LEAST_GIB

    @property
    def memory_sentence(self) -> str:
        """The memory that it holds, in words."""
        size = "memory of unknown size" if self.gib is None else f"{self.gib:.1f} GiB"
        known_text = f" ({self.known_name})" if self.known_name else ""
        return f"{self.place}{known_text} holds {size} on the GPU"

    def __str__(self) -> str:
        return f"{self.memory_sentence}: {self.remedy}"


def foreign_holders(host: config.HostConfig | None, paths: layout.Paths) -> list[GpuHolder]:
    """Return the holders that are not ours, the largest first; [] without a driver.

    `host` says which units are ours; None means that no deploy has come yet. Processes in
    containers are left out while Docker does not answer: they may be ours.

    Raises:
        errors.Problem: nvidia-smi fails, or does not answer within `LIMIT_S`.
    """
    if shutil.which(_QUERY[0]) is None:
        return []
    result = runner.run(_QUERY, timeout=LIMIT_S)
    if result.returncode != 0:
        output = " ".join((result.stdout + result.stderr).split())[:200]
        raise errors.Problem(f"nvidia-smi ended with {result.returncode}: {output}")
    units = {model.unit for model in host.models.values()} if host else set()
    processes_by_place: dict[str, list[tuple[_Process, float | None]]] = {}
    for process, gib in _rows(result.stdout, paths):
        processes_by_place.setdefault(process.place, []).append((process, gib))
    containers = (
        _containers_by_id(paths)
        if any(holder[0][0].container for holder in processes_by_place.values())
        else {}
    )
    holders = [
        _holder(of, containers)
        for of in processes_by_place.values()
        if not _is_ours(of[0][0], units, containers)
    ]
    return sorted(holders, key=lambda holder: -(holder.gib or 0.0))


def foreign_holder_sentences(host: config.HostConfig | None, paths: layout.Paths) -> list[str]:
    """Return the foreign holders as sentences, or a sentence that they cannot be told."""
    try:
        return [str(holder) for holder in foreign_holders(host, paths)]
    except errors.Problem as problem:
        return [f"who holds memory on the GPU cannot be told ({problem}): see `sudo dmesg | tail`"]


def deployed_host_sentences(_: object) -> list[str]:
    """Return the foreign holders as sentences, for this host as it was last deployed."""
    paths, host = layout.Paths(), None
    with suppress(errors.Problem):
        host = config.load_host(paths.models)
    return foreign_holder_sentences(host, paths)


@dataclass(frozen=True)
class _Process:
    """One process of the driver's list.

    Attributes:
        pid: Its id.
        name: The name of its program.
        container: Id of its container, or "".
        unit: Its unit, or "".
        argv: Its command line, to recognise it by; never shown, because it may hold a secret.
    """

    pid: int
    name: str
    container: str
    unit: str
    argv: tuple[str, ...]

    @property
    def place(self) -> str:
        return self.container or self.unit or f"{self.name}, process {self.pid}"


def _rows(text: str, paths: layout.Paths) -> Iterator[tuple[_Process, float | None]]:
    for line in text.splitlines():
        pid, _, columns = line.partition(",")
        name, _, memory_text = columns.rpartition(",")
        if not pid.strip().isdecimal():
            continue
        # The driver may write "[N/A]" or "[Not Supported]".
        gib = float(memory_text) / _MIB_PER_GIB if memory_text.strip().isdecimal() else None
        yield _process(int(pid), name.strip(), paths), gib


def _process(pid: int, name: str, paths: layout.Paths) -> _Process:
    container = unit = ""
    argv: tuple[str, ...] = ()
    folder = paths.proc / str(pid)
    with suppress(OSError):
        for line in (folder / "cgroup").read_text(encoding="utf-8").splitlines():
            group = line.rpartition(":")[2]
            inside = _CONTAINER.search(group)
            container = inside[1] if inside else container
            # A login session is a scope, which is no unit that anybody stops.
            services = [part for part in group.split("/") if part.endswith(".service")]
            unit = services[-1] if services and not inside else unit
        words = (folder / "cmdline").read_text(encoding="utf-8", errors="replace")
        argv = tuple(words.rstrip("\0").split("\0"))
    # The manager of a person's session started the process itself, so it has no unit of its own.
    if unit.startswith("user@"):
        unit = ""
    return _Process(pid, PurePosixPath(name).name or str(pid), container, unit, argv)


def _containers_by_id(paths: layout.Paths) -> dict[str, dict[str, Any]] | None:
    """Return the running containers by id; None if Docker does not answer."""
    try:
        running = docker_api.Docker(paths.docker_socket, timeout=5).running_containers()
    except (docker_api.DockerUnreachable, docker_api.DockerError):
        return None
    return {
        str(container["Id"]): {**container, "name": name} for name, container in running.items()
    }


def _is_ours(
    process: _Process, units: Iterable[str], containers: dict[str, dict[str, Any]] | None
) -> bool:
    if process.container:
        if containers is None:
            return True
        return docker_api.is_ours(containers.get(process.container, {}).get("Labels"))
    return process.unit in units or process.unit.startswith("lockstep-")


def _holder(
    of: Sequence[tuple[_Process, float | None]], containers: dict[str, dict[str, Any]] | None
) -> GpuHolder:
    first = of[0][0]
    sizes = [gib for _, gib in of if gib is not None]
    container = (containers or {}).get(first.container, {})
    name = str(container.get("name") or first.container[:12])
    texts = [name, str(container.get("Image", "")), first.unit]
    texts += [word for process, _ in of for word in (process.name, *process.argv)]
    known_program = _recognise_program(" ".join(texts), [process.argv for process, _ in of])
    if first.container:
        place, stop = f"container {name}", f"docker stop {name}"
    elif first.unit:
        place, stop = first.unit, f"sudo systemctl stop {first.unit}"
    else:
        place, stop = first.place, f"sudo kill {' '.join(str(process.pid) for process, _ in of)}"
    own = f"{known_program.remedy}, or " if known_program and known_program.remedy else ""
    return GpuHolder(
        place=place,
        gib=round(sum(sizes), 1) if sizes else None,
        known_name=known_program.name if known_program else "",
        remedy=f"{own}`{stop}`",
        engine=known_program.engine if known_program else False,
    )


def _recognise_program(text: str, lines: Iterable[Sequence[str]]) -> KnownProgram | None:
    for known_program in KNOWN_PROGRAMS:
        if known_program.words.search(text):
            return known_program
    for engine in engines.ENGINES.values():
        # The engines' processes call themselves VLLM::EngineCore, sglang::scheduler.
        if any(word in text.lower() for word in (*engine.images, f"{engine.name}::")) or any(
            foreign_engines.engine_start_index(argv, way) is not None
            for argv in lines
            for way in engine.entries
        ):
            return KnownProgram(engine.title, re.compile(""))
    return None
