"""What the programs on a Spark share: their configuration, memory figures and error style.

The deploy copies this folder to /usr/local/lib/lockstep/ as it is. Every program there is run by
/usr/bin/python3 with nothing but the standard library (Python 3.11 to 3.13) and finds its helpers
in its own folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from lockstep.onhost.core import need, schema
from lockstep.onhost.core import topology as clusters

GIB = 1024**3

Cluster = clusters.Cluster
Need = need.Need

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
# Of switch.sh: what was asked for failed, and ...
EXIT_FALLBACK = 3  # its fallback is hot
EXIT_NOTHING_HOT = 4  # no model is hot
# sysexits.h: EX_TEMPFAIL ("try again later") and EX_NOPERM.
EXIT_LOCKED = 75
EXIT_NOT_PERMITTED = 77


class Problem(Exception):
    """An error for the operator: what was expected, what was found, and the remedy.

    `code` is the exit code of the program that prints it.
    """

    def __init__(self, message: str, code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Paths:
    """Where things are on a host; `root` is another folder only in unit tests."""

    root: Path = Path("/")

    @property
    def targets(self) -> Path:
        """Configuration written by the deploy."""
        return self.root / "etc/lockstep/targets.json"

    @property
    def weights(self) -> Path:
        """Which weights the units here serve; a deploy may already be fetching others."""
        served = self.root / "etc/lockstep/served-weights.json"
        return served if served.exists() else self.root / "etc/lockstep/weights.json"

    @property
    def accepted(self) -> Path:
        """Accepted speeds, which later deploys are compared with."""
        return self.root / "var/lib/lockstep-deploy/accepted.json"

    @property
    def image_answers(self) -> Path:
        """What the engines inside images said about their recipes."""
        return self.root / "var/cache/lockstep/images"

    @property
    def proc(self) -> Path:
        """The kernel's process file system."""
        return self.root / "proc"

    @property
    def run(self) -> Path:
        """Locks; gone after a reboot."""
        return self.root / "run/lockstep"

    @property
    def unfinished(self) -> Path:
        """What a switch that was cut off owes."""
        return self.run / "unfinished-switch.json"

    @property
    def rollout(self) -> Path:
        """Which target a deploy is just restarting."""
        return self.run / "rollout.json"

    @property
    def wedge_record(self) -> Path:
        """What the wedge watch saw and did."""
        return self.run / "wedge.json"

    @property
    def secrets(self) -> Path:
        """Keys; only root can read them."""
        return self.root / "etc/lockstep/secrets"

    @property
    def groups(self) -> Path:
        """Which clusters run here, and how the last run of each ended."""
        return self.run / "clusters.json"

    @property
    def groups_kept(self) -> Path:
        """The same on disk: a boot forgets the other one."""
        return self.root / "var/lib/lockstep-cluster/groups.json"

    @property
    def joined(self) -> Path:
        """The switch of a cluster that this host takes part in now."""
        return self.run / "cluster-switch.json"

    @property
    def admitted(self) -> Path:
        """The target of a cluster that may be started now."""
        return self.run / "cluster-admitted.json"

    @property
    def state(self) -> Path:
        """What the deploy keeps about itself; only root can read it."""
        return self.root / "var/lib/lockstep-deploy"

    @property
    def generations(self) -> Path:
        """Records of what this host was brought to."""
        return self.state / "generations"

    @property
    def pulled(self) -> Path:
        """Notes of the images that a deploy pulled here."""
        return self.state / "pulled"

    @property
    def before(self) -> Path:
        """What there was before a rollout that has not ended well yet."""
        return self.state / "before.json"

    @property
    def log(self) -> Path:
        """Logs of long jobs."""
        return self.root / "var/log/lockstep"

    @property
    def layers(self) -> Path:
        """Manifests and compressed layers of images by hash."""
        return self.root / "var/cache/lockstep/layers"

    @property
    def docker_socket(self) -> Path:
        """Docker Engine API."""
        return self.root / "var/run/docker.sock"


@dataclass(frozen=True)
class Target:
    """One name that switch.sh accepts, as the deploy bound it on this host.

    `url` is where clients ask, `engine_url` the engine itself; they differ where `proxy_unit`, a
    proxy that merges roles or asks for the API key, stands between them.
    `weights` are ids of models on the hub, or full paths, that must be here before a start.
    `floor_tok_s` and `floor_share` are what a deploy must not fall below (`floor.py`).
    `cluster` names the Sparks that run it together; the others than rank 0 may have no `url`.
    `alike` is the hash of what the deploy made of it, without the rank's own words.
    """

    name: str
    unit: str
    url: str
    model: str
    memory_gib: float
    start_timeout_s: float
    recipe: str = ""
    engine: str = ""
    container: str | None = None
    image: str | None = None
    fallback: str | None = None
    api_key_file: str | None = None
    engine_url: str | None = None
    proxy_unit: str | None = None
    canary_timeout_s: float = 600.0
    weights: tuple[str, ...] = ()
    floor_tok_s: float | None = None
    floor_share: float | None = None
    cluster: str | None = None
    alike: str = ""
    memory_share: float = 0.0
    memory_of_total: bool = False
    memory_beside_gib: float = 0.0

    @property
    def need(self) -> Need:
        """What it needs of the unified memory before it starts."""
        return Need(
            self.memory_gib, self.memory_share, self.memory_of_total, self.memory_beside_gib
        )


_HAS_RANK = schema.Rule(
    "has no member of this host's rank",
    lambda cluster: 0 <= cluster.rank < len(cluster.members),
    "rank: 0 for the first of members",
)


@dataclass(frozen=True)
class Host:
    """All targets of this host, and the clusters that it is a member of, by name.

    The deploy writes it to targets.json, field by field.
    """

    name: str
    targets: Mapping[str, Target]
    webui_unit: str = "open-webui.service"
    clusters: Mapping[str, Annotated[Cluster, _HAS_RANK]] = field(default_factory=dict)

    def target(self, name: str) -> Target:
        """The target called `name`; Problem (wrong use) names the known ones."""
        if name not in self.targets:
            known = ", ".join(self.targets) or "none is configured"
            raise Problem(f"unknown target {name!r}; known targets: {known}", EXIT_USAGE)
        return self.targets[name]

    def others(self, name: str) -> list[Target]:
        """Every target that runs under another unit than `name` does."""
        unit = self.target(name).unit
        return [target for target in self.targets.values() if target.unit != unit]

    def cluster(self, name: str) -> Cluster | None:
        """The cluster that runs the target called `name`; None for one of this host alone."""
        cluster = self.target(name).cluster
        return self.clusters[cluster] if cluster else None


def load_host(path: Path) -> Host:
    """Read targets.json. Problem (wrong use) names the file, the key and what was found."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _unusable(error.strerror or str(error), where=str(path)) from error
    except ValueError as error:
        raise _unusable(f"not JSON: {error}", where=str(path)) from error
    # Programs come before their file: one that an earlier deploy wrote may have other keys.
    host = schema.build(Host, data, where=str(path), error=_unusable, strict=False)
    for target in host.targets.values():
        if target.cluster and target.cluster not in host.clusters:
            raise _unusable(
                f"targets.{target.name}.cluster is not known",
                where=str(path),
                found=repr(target.cluster),
                allowed=", ".join(host.clusters) or "none",
            )
    return host


def _unusable(
    what: str, *, where: str, found: str = "", allowed: str = "", remedy: str = ""
) -> Problem:
    said = "".join((what, found and f"; found {found}", allowed and f"; allowed: {allowed}"))
    remedy = "run the deploy again, it writes this file"
    return Problem(f"{where}: {said}. Remedy: {remedy}.", EXIT_USAGE)


@dataclass(frozen=True)
class Memory:
    """Unified memory of this host in GiB, from /proc/meminfo.

    `available` (MemAvailable) is what an engine can get. `free` (MemFree) leaves out the page
    cache and is what vLLM before 0.20.2 looks at on an integrated GPU (facts of 2026-11).
    """

    total: float
    available: float
    free: float


def memory(proc: Path = Path("/proc")) -> Memory:
    """Read /proc/meminfo. Problem when a field is missing."""
    fields = {}
    for line in (proc / "meminfo").read_text(encoding="ascii").splitlines():
        key, _, rest = line.partition(":")
        fields[key] = rest.split()
    try:
        kib = [int(fields[key][0]) for key in ("MemTotal", "MemAvailable", "MemFree")]
    except (KeyError, IndexError, ValueError) as error:
        raise Problem(f"{proc}/meminfo: cannot read {error}") from error
    return Memory(*(value * 1024 / GIB for value in kib))


def run(argv: Sequence[str], timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and return it, whatever its exit status.

    Problem when the program is missing or does not end within `timeout` seconds.
    """
    try:
        return subprocess.run(
            list(argv), capture_output=True, text=True, errors="replace", timeout=timeout
        )
    except FileNotFoundError as error:
        raise Problem(f"{argv[0]}: command not found") from error
    except subprocess.TimeoutExpired as error:
        raise Problem(f"{argv[0]} did not answer within {timeout:.0f} s") from error


_audience = {"left": False}


def say(line: str) -> None:
    """Print one line at once. A reader that went away (closed terminal) is no error."""
    try:
        print(line, flush=True)
    except OSError:
        _audience["left"] = True
        # Without this, Python tries again at exit and ends with status 120.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115


def nobody_reads() -> bool:
    """Whether an earlier `say` found that its reader had gone away."""
    return _audience["left"]


def ended(
    program: str, main: Callable[[], int], shape: Callable[[str], str] = lambda text: text
) -> int:
    """Run `main` and turn a Problem or Ctrl-C into a message on stderr and an exit code.

    `shape` makes the message fit where it is read.
    """
    try:
        return main()
    except Problem as problem:
        print(shape(f"{program}: {problem}"), file=sys.stderr, flush=True)
        return problem.code
    except KeyboardInterrupt:
        return 130


def duration(seconds: float) -> str:
    """A length of time as people say it: 45 s, 12 min, 3 h 5 min, 2 d 4 h."""
    total = int(seconds)
    if total < 100:
        return f"{total} s"
    minutes = total // 60
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"
