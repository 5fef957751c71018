"""Brings a lab up and takes it down."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import control, heal, root
from lab.copy import make as make_copy
from lab.copy import require_no_copies
from lab.core import debian
from lab.core.errors import LabError
from lab.core.progress import Report, Steps
from lab.core.run import run
from lab.core.state import Lab, hosts
from lab.host import cgroup, connection, gpu

#: Free space that a lab needs: root 0.8, wheels 1, images 1, and per host an engine environment
#: of 3 and its weights and packages of 1 (GiB, measured on the development machine, 2026-11).
LEAST_FREE = 15 * 2**30
DEFAULT_HOSTS = 2
_SUPERVISOR_LIMIT = 20.0
#: Seconds; more than the limits for a shutdown, a power cut and the servers together.
_DOWN_LIMIT = 180.0
_CHECKOUT = Path(__file__).parent.parent


def require_root() -> None:
    """``LabError`` unless this process may make namespaces, mounts and control groups."""
    if os.geteuid() != 0:
        raise LabError(
            "the lab needs root: it makes network namespaces, mounts and control groups",
            "Run the command with sudo.",
        )


@dataclass(frozen=True)
class LabRequest:
    """A user's wishes for a lab; None leaves it as it runs, or takes the default."""

    hosts: int | None = None
    cgroups: str | None = None
    services: bool = True
    gpu: bool = False


def up(lab: Lab, lab_request: LabRequest, steps: Steps) -> dict[str, Any]:
    """Bring ``lab`` up, healing what a crash left; quick when it is up. Returns its status.

    Raises ``LabError`` when the machine lacks something, when the lab runs otherwise than
    wanted, when copies of it exist, or when a host or server does not come up: then everything that
    this call started is taken down again.
    """
    require_root()
    with _only_one(lab):
        if heal.supervisor_alive(lab) and control.ask(lab, "status").get("trouble"):
            _end(lab)
        is_starting = not heal.supervisor_alive(lab)
        if is_starting:
            require_no_copies(lab)
            _start(lab, lab_request, steps)
        else:
            _require_equal(lab, lab_request)
        try:
            _await_ready(lab, steps)
        except BaseException:
            if is_starting:
                _end(lab)
            raise
        status: dict[str, Any] = control.ask(lab, "status")
        connection.save(lab, connection.describe(lab, hosts(len(status["hosts"]))))
    return status


def build(lab: Lab, steps: Steps) -> None:
    """Build what all labs are made of, where it is missing, and start nothing; as ``up`` does.

    Raises ``LabError`` when the machine lacks something or a download fails.
    """
    require_root()
    _require_machine(lab, steps)
    _prepare(lab, steps, services=True)


def down(lab: Lab, report: Report, cut: bool) -> bool:
    """Shut the hosts down and remove every trace but the disks; False if nothing was there.

    ``cut`` takes their power instead, at once: for disks that nobody wants any more.

    Raises ``LabError`` when the supervisor does not end within three minutes.
    """
    require_root()
    with _only_one(lab):
        alive = heal.supervisor_alive(lab)
        was_up = alive or lab.description.exists()
        lab.description.unlink(missing_ok=True)
        doing = "cutting the hosts' power" if cut else "shutting the hosts down"
        report(doing if alive else "cleaning up")
        _end(lab, cut)
    shutil.rmtree(lab.runtime, ignore_errors=True)
    return was_up


def copy(source: Lab, lab: Lab) -> None:
    """Make ``lab``, which is not there yet, begin as ``source`` is; raises as ``lab.copy.make``."""
    require_root()
    # Several copies may be made at once, as long as nobody brings the source up.
    with _only_one(source, fcntl.LOCK_SH):
        make_copy(source, lab)


@contextlib.contextmanager
def _only_one(lab: Lab, kind: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Let no second ``up`` or ``down`` of this lab run at the same time; copies may, together."""
    lab.runtime.mkdir(parents=True, exist_ok=True)
    with (lab.runtime / "up.lock").open("w") as lock:
        try:
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LabError(
                f"another up, down or copy of lab {lab.name!r} is under way",
                "Wait for it to end, or choose another lab with --name.",
            ) from None
        yield


def _require_equal(lab: Lab, lab_request: LabRequest) -> None:
    status = control.ask(lab, "status")
    running, cgroups = len(status["hosts"]), status.get("cgroups", "v2")
    if lab_request.gpu and not status.get("gpu"):
        raise LabError(
            f"lab {lab.name!r} is up without the GPU",
            f"Take it down first (lockstep lab down --name {lab.name}), or use another name.",
        )
    if lab_request.hosts not in (None, running) or lab_request.cgroups not in (None, cgroups):
        raise LabError(
            f"lab {lab.name!r} is up with {running} hosts and control groups {cgroups}; "
            f"{lab_request.hosts or running} and {lab_request.cgroups or cgroups} were asked for",
            f"Take it down first (lockstep lab down --name {lab.name}), or use another name.",
        )


def _start(lab: Lab, lab_request: LabRequest, steps: Steps) -> None:
    count, cgroups = lab_request.hosts or DEFAULT_HOSTS, lab_request.cgroups or "v2"
    hosts(count)
    if cgroups == "v1" and not cgroup.has_version_1():
        raise LabError(
            "this machine has no version 1 control groups",
            "Leave --cgroup away: where the machine has only version 2, limits are enforced.",
        )
    if lab_request.gpu:
        gpu.options(hosts(1)[0])
    _require_machine(lab, steps)
    heal.clean(lab)
    base = _prepare(lab, steps, lab_request.services)
    _make_key(lab)
    options = [] if lab_request.services else ["--no-services"]
    options += ["--gpu"] if lab_request.gpu else []
    _launch(lab, [str(count), str(base), cgroups, *options])


def _prepare(lab: Lab, steps: Steps, services: bool) -> Path:
    """Build root and content at the same time: each mostly waits for the network."""

    def build_root() -> Path:
        with steps.step("root") as report:
            return root.prepare(lab.cache, report)

    def build_content() -> None:
        from lab.services import prepare

        with steps.step("content") as report:
            prepare(lab.cache, report)

    with ThreadPoolExecutor() as pool:
        base = pool.submit(build_root)
        if services:
            pool.submit(build_content).result()
        return base.result()


def _require_machine(lab: Lab, steps: Steps) -> None:
    missing = debian.missing_packages()
    if missing:
        with steps.step("packages") as report:
            debian.install(missing, report)
    _require_space(lab)


def _require_space(lab: Lab) -> None:
    for folder in {lab.state, lab.cache}:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
        if free < LEAST_FREE:
            raise LabError(
                f"{folder}: {free / 2**30:.1f} GiB free, {LEAST_FREE / 2**30:.0f} are needed",
                "Free some, or point LOCKSTEP_LAB_STATE and LOCKSTEP_LAB_CACHE elsewhere.",
            )


def _make_key(lab: Lab) -> None:
    """Make a key pair of the lab's own, kept over ``down`` because the hosts' disks know it."""
    lab.log.mkdir(parents=True, exist_ok=True)
    lab.key.parent.mkdir(mode=0o700, exist_ok=True)
    if not lab.key.exists():
        comment = f"lockstep-lab-{lab.name}"
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(lab.key)])


def _launch(lab: Lab, arguments: list[str]) -> None:
    """Start the supervisor as a process of its own and wait until it answers."""
    log = lab.log / "supervisor.log"
    argv = [sys.executable, "-m", "lab.supervisor", lab.name, *arguments]
    with log.open("ab") as output:
        process = subprocess.Popen(
            argv,
            cwd=_CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    give_up = time.monotonic() + _SUPERVISOR_LIMIT
    while not lab.control_socket.exists():
        if process.poll() is not None or time.monotonic() > give_up:
            log_tail = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
            raise LabError(f"the lab's supervisor did not start:\n{log_tail}", f"Whole log: {log}")
        time.sleep(0.05)


def _await_ready(lab: Lab, steps: Steps) -> None:
    """Wait until every server answers and every host has power and lets its user in."""
    status = control.ask(lab, "status")
    with ThreadPoolExecutor(max_workers=32) as pool:

        def wait(name: str, action: str, **details: Any) -> None:
            with steps.step(name) as report:
                report("starting")
                control.ask(lab, action, **details)

        waits = [
            pool.submit(wait, entry["name"], "ready", service=entry["name"])
            for entry in status["services"]
        ]
        waits += [
            pool.submit(wait, entry["name"], "cycle", host=entry["name"], off=False, on=True)
            for entry in status["hosts"]
        ]
        for future in waits:
            future.result()
    if trouble := control.ask(lab, "status").get("trouble"):
        raise LabError(trouble)


def _end(lab: Lab, cut: bool = False) -> None:
    """End the supervisor, if it runs, and remove everything of the lab but the disks."""
    if heal.supervisor_alive(lab):
        control.ask(lab, "down", cut=cut)
        _await_end(lab)
    heal.clean(lab)


def _await_end(lab: Lab) -> None:
    give_up = time.monotonic() + _DOWN_LIMIT
    while heal.supervisor_alive(lab):
        if time.monotonic() > give_up:
            raise LabError(
                f"the supervisor of lab {lab.name!r} does not end within {_DOWN_LIMIT:.0f} s",
                f"See {lab.log / 'supervisor.log'}.",
            )
        time.sleep(0.05)
