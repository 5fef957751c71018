"""Does what a plan of removal says, kind by kind; each action may be repeated."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from lockstep.onhost.core import atomic, errors, layout, program, runner
from lockstep.onhost.docker import docker_api
from lockstep.onhost.garbage import cleanup, unneeded
from lockstep.onhost.records import ours, packages
from lockstep.onhost.removal.items import Item
from lockstep.onhost.switching import switch_job

# A model that ends, Docker that forgets an image of tens of gigabytes, apt's turn: seconds.
_LIMIT_S = 900.0
_DOCKER = "docker.service"
_DROP_INS = {
    "/etc/systemd/system/ssh.service.d/60-lockstep.conf": "ssh.service",
    "/etc/default/earlyoom": "earlyoom.service",
}


class Actions:
    """On one host; `docker` is None where it has none."""

    def __init__(self, paths: layout.Paths, docker: docker_api.Docker | None) -> None:
        self._paths = paths
        self._docker = docker

    def of(self, kind: str, items: Sequence[Item]) -> list[tuple[Item, str]]:
        """Do all things of a kind; those that could not be done, and why."""
        at_once: dict[str, Callable[[Sequence[Item]], None]] = {
            "model": self._models,
            "unit": self._units,
            "package": self._packages,
        }
        failed: list[tuple[Item, str]] = []
        if kind in at_once:
            try:
                at_once[kind](items)
            except (errors.Problem, OSError) as error:
                return [(item, _why(error)) for item in items]
            return []
        one: Callable[[Item], None] = getattr(self, f"_{kind}")
        for item in items:
            try:
                one(item)
            except (errors.Problem, OSError, docker_api.DockerError) as error:
                failed.append((item, _why(error)))
        self._read_again(kind, items)
        return failed

    def _models(self, items: Sequence[Item]) -> None:
        """As `switch.sh none` does, so that a cluster ends on all members; the units end anyway."""
        with suppress(errors.Problem):
            runner.run(program.command("switch", "none"), _LIMIT_S)
        # A job that is done stays loaded, so that its end can be asked for.
        runner.run(["systemctl", "stop", switch_job.UNIT], _LIMIT_S)

    def _units(self, items: Sequence[Item]) -> None:
        names = [item.name for item in items]
        # One that has no file, as what a trial of rules or addresses left, would keep all enabled.
        files = [name for name in names if self._at(ours.UNITS + name).exists()]
        runner.run(["systemctl", "disable", "--quiet", *files], _LIMIT_S)
        runner.run(["systemctl", "stop", *names], _LIMIT_S)
        runner.run(["systemctl", "reset-failed", *names])
        left = [name for name in names if _succeeds("systemctl", "is-active", "--quiet", name)]
        if left:
            raise errors.Problem(f"still running: {', '.join(left)}")

    def _packages(self, items: Sequence[Item]) -> None:
        packages.purge(self._paths, [item.name for item in items])

    def _container(self, item: Item) -> None:
        assert self._docker
        self._docker.remove(item.name)

    def _volume(self, item: Item) -> None:
        assert self._docker
        self._docker.json("DELETE", f"/volumes/{item.name}", none=(404,))

    def _image(self, item: Item) -> None:
        assert self._docker
        image = unneeded.Item("image", item.name, 0, (Path(item.detail),))
        cleanup.remove(self._paths, self._docker, image)

    def _firewall(self, item: Item) -> None:
        # The unit that ended may have taken it along.
        runner.must("nft", f"table {item.name}; delete table {item.name}", timeout=_LIMIT_S)

    def _weights(self, item: Item) -> None:
        note = Path(item.detail)
        cache = note.parent.parent / "hub"
        weights = unneeded.Item("weights", item.name, 0, (note, cache))
        cleanup.remove(self._paths, docker_api.Docker(self._paths.docker_socket), weights)

    def _file(self, item: Item) -> None:
        self._at(item.name).unlink(missing_ok=True)

    def _original(self, item: Item) -> None:
        at, copy = self._at(item.name), self._at(ours.ADOPTED + item.name)
        if copy.is_file():
            text = copy.read_text(encoding="utf-8", errors="surrogateescape")
            atomic.write(at, text)
        if item.detail:
            _, mode, owner, group = item.detail.split()
            at.chmod(int(mode, 8))
            shutil.chown(at, owner, group)

    def _mask(self, item: Item) -> None:
        self._at(ours.UNITS + item.name).unlink(missing_ok=True)

    def _setting(self, item: Item) -> None:
        at = self._at(f"/proc/sys/{item.name.replace('.', '/')}")
        at.write_text(item.detail, encoding="utf-8")

    def _member(self, item: Item) -> None:
        name, group = item.detail.split()
        runner.must("gpasswd", "--delete", name, group, timeout=_LIMIT_S)

    def _account(self, item: Item) -> None:
        if ours.home_of(item.name) is not None:
            runner.must("userdel", item.name, timeout=_LIMIT_S)

    def _group(self, item: Item) -> None:
        runner.must("groupdel", item.name, timeout=_LIMIT_S)

    def _content(self, item: Item) -> None:
        at = self._at(item.name)
        if at.is_dir() and not at.is_symlink():
            shutil.rmtree(at)
        else:
            at.unlink(missing_ok=True)

    def _folder(self, item: Item) -> None:
        # What is not empty holds others' files.
        with suppress(OSError):
            self._at(item.name).rmdir()

    _record = _program = _content

    def _at(self, path: str) -> Path:
        return self._paths.root / path.lstrip("/")

    def _read_again(self, kind: str, items: Sequence[Item]) -> None:
        """Have services read that files of ours are gone, or that others' are back."""
        if kind not in ("file", "original", "mask"):
            return
        names = {item.name for item in items}
        runner.run(["systemctl", "daemon-reload"], _LIMIT_S)
        for path in sorted(names & _DROP_INS.keys()):
            runner.run(["systemctl", "try-restart", _DROP_INS[path]], _LIMIT_S)
        drop_in = any(PurePosixPath(name).parent.name == f"{_DOCKER}.d" for name in names)
        # Its restart ends containers, also those of others.
        if drop_in and self._docker is not None and not self._docker.running():
            runner.run(["systemctl", "try-restart", _DOCKER], _LIMIT_S)
        # Without a file of before nothing is applied: a login may come through these addresses.
        if kind == "original" and any(name.startswith("/etc/netplan/") for name in names):
            runner.run(["netplan", "apply"], _LIMIT_S)


def _succeeds(*argv: str) -> bool:
    return runner.run(list(argv)).returncode == 0


def _why(error: Exception) -> str:
    name = getattr(error, "filename", None)
    return f"{name}: {errors.why(error)}" if name else errors.why(error)
