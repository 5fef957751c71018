"""Who holds memory on the GPU: the kernel charges it to no process, the driver knows.

nvidia-smi names each process, on a GB10 too, whose totals are "Not Supported". By its control group
a process is of a container or a unit; those of a deploy are ours, and what else people run on a
Spark is known by the words of `KNOWN`, beside the engines of `onhost/engines`.
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
from lockstep.onhost.engine import theirs

_QUERY = (
    "nvidia-smi",
    "--query-compute-apps=pid,process_name,used_memory",
    "--format=csv,noheader,nounits",
)
#: A driver that hangs answers nobody.
LIMIT_S = 10.0
#: Of what nobody knows by name, so much is worth a finding beside a hot model. The system's own
#: manager was seen with 3.3 GB on a Spark at rest (article 002).
LEAST_GIB = 4.0
_MIB_PER_GIB = 1024
_CONTAINER = re.compile(r"(?:(?:docker|libpod)-|/docker/)([0-9a-f]{64})")


@dataclass(frozen=True)
class Known:
    """What people run on a Spark.

    Attributes:
        name: In sentences.
        words: Pattern of what a container, its image, a unit or a command line says.
        remedy: How its own users stop it; "" where the container or the unit is all there is.
        engine: Whether it serves models, so that it may take much at any time.
    """

    name: str
    words: re.Pattern[str]
    remedy: str = ""
    engine: bool = True


def _program(name: str, words: str, remedy: str = "", engine: bool = True) -> Known:
    return Known(name, re.compile(words, re.IGNORECASE), remedy, engine)


#: First match wins, and before the engines of `onhost/engines`.
KNOWN = (
    # Container, image and port as in dgx-spark-playbooks, nvidia/playbook-vllm/assets (2026-10).
    _program(
        "NVIDIA Sync's vLLM",
        r"\bvllm-qwen36-35b-a3b\b",
        "stop it in NVIDIA Sync, tab Models (port 18765)",
    ),
    _program("Open WebUI's bundle with Ollama", r"open-webui:\S*ollama"),
    _program("Ollama", r"\bollama\b", "`ollama ps`, then `ollama stop MODEL`"),
    _program("LM Studio", r"lm[-_ ]?studio|\blms\b", "`lms unload --all`"),
    _program("ComfyUI", r"comfyui"),
    _program(
        "a text-to-speech engine", r"\btts\b|\bcsm\b|kokoro|xtts|chatterbox|orpheus|fish-speech"
    ),
    _program("a speech recogniser", r"whisper|parakeet|speaches|\briva\b"),
    _program("TensorRT-LLM", r"trtllm|tensorrt[-_]llm"),
    _program("a NIM", r"nvcr\.io/nim/"),
    _program("Triton Inference Server", r"tritonserver"),
    _program("an image generator", r"invokeai|stable-diffusion|fooocus"),
    _program("text-generation-webui", r"text-generation-webui"),
    _program("a notebook", r"ipykernel|jupyter", "shut its kernel down", engine=False),
    _program("the desktop", r"\bgnome-shell\b|\bXorg\b|\bXwayland\b", engine=False),
)


@dataclass(frozen=True)
class Holder:
    """A container, a unit or a process that holds memory on the GPU.

    Attributes:
        place: What it is ("container ollama", "ollama.service", "python3, process 4711").
        gib: How much; None where the driver does not tell.
        known: Its name in `KNOWN` or of its engine; "" for anything else.
        remedy: What stops it.
        engine: Whether it is known to serve models.
    """

    place: str
    gib: float | None
    known: str
    remedy: str
    engine: bool

    @property
    def matters(self) -> bool:
        """Whether it is to be told of beside a hot model."""
        return self.engine or (self.gib or 0.0) >= LEAST_GIB

    @property
    def words(self) -> str:
        """What it holds, in words."""
        size = "memory of unknown size" if self.gib is None else f"{self.gib:.1f} GiB"
        known = f" ({self.known})" if self.known else ""
        return f"{self.place}{known} holds {size} on the GPU"

    def __str__(self) -> str:
        return f"{self.words}: {self.remedy}"


def foreign(host: config.Host | None, paths: layout.Paths) -> list[Holder]:
    """Those that are not ours, the largest first; [] without a driver.

    `host` says which units are ours; None: a deploy has not come yet. What is in a container while
    Docker does not answer is left out: it may be ours.

    Raises:
        errors.Problem: nvidia-smi fails, or does not answer within `LIMIT_S`.
    """
    if shutil.which(_QUERY[0]) is None:
        return []
    done = runner.run(_QUERY, timeout=LIMIT_S)
    if done.returncode != 0:
        said = " ".join((done.stdout + done.stderr).split())[:200]
        raise errors.Problem(f"nvidia-smi ended with {done.returncode}: {said}")
    units = {target.unit for target in host.targets.values()} if host else set()
    held: dict[str, list[tuple[_Process, float | None]]] = {}
    for process, gib in _rows(done.stdout, paths):
        held.setdefault(process.place, []).append((process, gib))
    containers = _containers(paths) if any(each[0][0].container for each in held.values()) else {}
    found = [
        _holder(of, containers) for of in held.values() if not _is_ours(of[0][0], units, containers)
    ]
    return sorted(found, key=lambda each: -(each.gib or 0.0))


def in_words(host: config.Host | None, paths: layout.Paths) -> list[str]:
    """The same as sentences; where it cannot be told, that."""
    try:
        return [str(each) for each in foreign(host, paths)]
    except errors.Problem as problem:
        return [f"who holds memory on the GPU cannot be told ({problem}): see `sudo dmesg | tail`"]


def told(_: object) -> list[str]:
    """The same, of this host as it was deployed last."""
    paths, host = layout.Paths(), None
    with suppress(errors.Problem):
        host = config.load_host(paths.targets)
    return in_words(host, paths)


@dataclass(frozen=True)
class _Process:
    """One process of the driver's list.

    Attributes:
        pid: Its id.
        name: Of its program.
        container: Id of its container, or "".
        unit: Its unit, or "".
        argv: Its command line, to know it by; never shown, because it may hold a secret.
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
        pid, _, rest = line.partition(",")
        name, _, used = rest.rpartition(",")
        if not pid.strip().isdecimal():
            continue
        # "[N/A]", "[Not Supported]".
        gib = float(used) / _MIB_PER_GIB if used.strip().isdecimal() else None
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
            # A login session is a scope: no unit that anybody stops.
            services = [part for part in group.split("/") if part.endswith(".service")]
            unit = services[-1] if services and not inside else unit
        words = (folder / "cmdline").read_text(encoding="utf-8", errors="replace")
        argv = tuple(words.rstrip("\0").split("\0"))
    # The manager of a person's session, where it started the process itself.
    if unit.startswith("user@"):
        unit = ""
    return _Process(pid, PurePosixPath(name).name or str(pid), container, unit, argv)


def _containers(paths: layout.Paths) -> dict[str, dict[str, Any]] | None:
    """Id → container, of those that run; None where Docker does not answer."""
    try:
        running = docker_api.Docker(paths.docker_socket, timeout=5).running()
    except (docker_api.Unreachable, docker_api.DockerError):
        return None
    return {str(each["Id"]): {**each, "name": name} for name, each in running.items()}


def _is_ours(
    process: _Process, units: Iterable[str], containers: dict[str, dict[str, Any]] | None
) -> bool:
    if process.container:
        if containers is None:
            return True
        return docker_api.ours(containers.get(process.container, {}).get("Labels"))
    return process.unit in units or process.unit.startswith("lockstep-")


def _holder(
    of: Sequence[tuple[_Process, float | None]], containers: dict[str, dict[str, Any]] | None
) -> Holder:
    first = of[0][0]
    sizes = [gib for _, gib in of if gib is not None]
    container = (containers or {}).get(first.container, {})
    name = str(container.get("name") or first.container[:12])
    texts = [name, str(container.get("Image", "")), first.unit]
    texts += [word for process, _ in of for word in (process.name, *process.argv)]
    known = _recognised(" ".join(texts), [process.argv for process, _ in of])
    if first.container:
        place, stop = f"container {name}", f"docker stop {name}"
    elif first.unit:
        place, stop = first.unit, f"sudo systemctl stop {first.unit}"
    else:
        place, stop = first.place, f"sudo kill {' '.join(str(process.pid) for process, _ in of)}"
    own = f"{known.remedy}, or " if known and known.remedy else ""
    return Holder(
        place=place,
        gib=round(sum(sizes), 1) if sizes else None,
        known=known.name if known else "",
        remedy=f"{own}`{stop}`",
        engine=known.engine if known else False,
    )


def _recognised(text: str, lines: Iterable[Sequence[str]]) -> Known | None:
    for known in KNOWN:
        if known.words.search(text):
            return known
    for engine in engines.ENGINES.values():
        # Its processes call themselves VLLM::EngineCore, sglang::scheduler.
        if any(word in text.lower() for word in (*engine.images, f"{engine.name}::")) or any(
            theirs.begins(argv, way) is not None for argv in lines for way in engine.entries
        ):
            return Known(engine.title, re.compile(""))
    return None
