"""Execution of a removal plan, kind by kind; each action may be repeated."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from lockstep.onhost.core import atomic_files, errors, layout, program_command_lines, runner
from lockstep.onhost.docker import docker_api
from lockstep.onhost.garbage import cleanup, unneeded_content
from lockstep.onhost.records import ownership, package_changes
from lockstep.onhost.removal.items import RemovalItem
from lockstep.onhost.switching import switch_commands
from lockstep.onhost.systemd import units

# A model's end, the removal of an image of tens of gigabytes, apt's turn: seconds.
_LIMIT_S = 900.0
_DOCKER = "docker.service"
_DROP_INS = {
    "/etc/systemd/system/ssh.service.d/60-lockstep.conf": "ssh.service",
    "/etc/default/earlyoom": "earlyoom.service",
}


class Actions:
    """Actions on one host; `docker` is None if it has none."""

    def __init__(self, paths: layout.Paths, docker: docker_api.Docker | None) -> None:
        self._paths = paths
        self._docker = docker

    def remove_items_of_kind(
        self, kind: str, items: Sequence[RemovalItem]
    ) -> list[tuple[RemovalItem, str]]:
        """Do all actions of a kind; return those that failed, and why."""
        at_once: dict[str, Callable[[Sequence[RemovalItem]], None]] = {
            "model": self._stop_models,
            "unit": self._stop_units,
            "package": self._purge_packages,
        }
        failures: list[tuple[RemovalItem, str]] = []
        if kind in at_once:
            try:
                at_once[kind](items)
            except (errors.Problem, OSError) as error:
                return [(item, _error_reason(error)) for item in items]
            return []
        action_by_kind: dict[str, Callable[[RemovalItem], None]] = {
            "container": self._remove_container,
            "volume": self._remove_volume,
            "image": self._remove_image,
            "firewall": self._remove_firewall_table,
            "weights": self._remove_weights,
            "file": self._remove_file,
            "original": self._restore_original,
            "mask": self._remove_mask,
            "setting": self._restore_setting,
            "member": self._remove_member,
            "account": self._remove_account,
            "group": self._remove_group,
            "content": self._remove_file_or_folder,
            "folder": self._remove_empty_folder,
            "record": self._remove_file_or_folder,
            "program": self._remove_file_or_folder,
        }
        action = action_by_kind[kind]
        for item in items:
            try:
                action(item)
            except (errors.Problem, OSError, docker_api.DockerError) as error:
                failures.append((item, _error_reason(error)))
        self._reload_services(kind, items)
        return failures

    def _stop_models(self, items: Sequence[RemovalItem]) -> None:
        """Stop models as `switch.sh none` does, so that a cluster ends on all members.

        The units end in any case.
        """
        with suppress(errors.Problem):
            runner.run(program_command_lines.command("switch", "none"), _LIMIT_S)
        # A finished job stays loaded, so that its exit code can be read.
        units.try_to_control("stop", switch_commands.UNIT, limit_s=_LIMIT_S)

    def _stop_units(self, items: Sequence[RemovalItem]) -> None:
        names = [item.name for item in items]
        # One unit without a file, as left by a trial of rules or addresses, would keep all enabled.
        files = [name for name in names if self._path_below_root(ownership.UNITS + name).exists()]
        units.try_to_control("disable", *files, limit_s=_LIMIT_S)
        units.try_to_control("stop", *names, limit_s=_LIMIT_S)
        units.try_to_control("reset-failed", *names)
        running_names = [name for name, unit in units.units_by_name(names).items() if unit.up]
        if running_names:
            raise errors.Problem(f"still running: {', '.join(running_names)}")

    def _purge_packages(self, items: Sequence[RemovalItem]) -> None:
        package_changes.purge_recorded_packages(self._paths, [item.name for item in items])

    def _remove_container(self, item: RemovalItem) -> None:
        assert self._docker
        self._docker.remove(item.name)

    def _remove_volume(self, item: RemovalItem) -> None:
        assert self._docker
        self._docker.request_json("DELETE", f"/volumes/{item.name}", none=(404,))

    def _remove_image(self, item: RemovalItem) -> None:
        assert self._docker
        image = unneeded_content.UnneededItem("image", item.name, 0, (Path(item.detail),))
        cleanup.remove(self._paths, self._docker, image)

    def _remove_firewall_table(self, item: RemovalItem) -> None:
        # The end of its unit may have removed it.
        runner.run_or_raise("nft", f"table {item.name}; delete table {item.name}", timeout=_LIMIT_S)

    def _remove_weights(self, item: RemovalItem) -> None:
        note = Path(item.detail)
        cache = note.parent.parent / "hub"
        weights = unneeded_content.UnneededItem("weights", item.name, 0, (note, cache))
        cleanup.remove(self._paths, docker_api.Docker(self._paths.docker_socket), weights)

    def _remove_file(self, item: RemovalItem) -> None:
        self._path_below_root(item.name).unlink(missing_ok=True)

    def _restore_original(self, item: RemovalItem) -> None:
        at, copy = (
            self._path_below_root(item.name),
            self._path_below_root(ownership.ADOPTED_FOLDER + item.name),
        )
        if copy.is_file():
            text = copy.read_text(encoding="utf-8", errors="surrogateescape")
            # With a record it has its own mode next, and may hold a password.
            atomic_files.write(at, text, mode=0o600 if item.detail else 0o644)
        if item.detail:
            _, mode, owner, group = item.detail.split()
            at.chmod(int(mode, 8))
            shutil.chown(at, owner, group)

    def _remove_mask(self, item: RemovalItem) -> None:
        self._path_below_root(ownership.UNITS + item.name).unlink(missing_ok=True)

    def _restore_setting(self, item: RemovalItem) -> None:
        at = self._path_below_root(f"/proc/sys/{item.name.replace('.', '/')}")
        at.write_text(item.detail, encoding="utf-8")

    def _remove_member(self, item: RemovalItem) -> None:
        name, group = item.detail.split()
        runner.run_or_raise("gpasswd", "--delete", name, group, timeout=_LIMIT_S)

    def _remove_account(self, item: RemovalItem) -> None:
        if ownership.home_of(item.name) is not None:
            runner.run_or_raise("userdel", item.name, timeout=_LIMIT_S)

    def _remove_group(self, item: RemovalItem) -> None:
        runner.run_or_raise("groupdel", item.name, timeout=_LIMIT_S)

    def _remove_file_or_folder(self, item: RemovalItem) -> None:
        at = self._path_below_root(item.name)
        if at.is_dir() and not at.is_symlink():
            shutil.rmtree(at)
        else:
            at.unlink(missing_ok=True)

    def _remove_empty_folder(self, item: RemovalItem) -> None:
        # A folder that is not empty holds files of others.
        with suppress(OSError):
            self._path_below_root(item.name).rmdir()

    def _path_below_root(self, path: str) -> Path:
        return self._paths.root / path.lstrip("/")

    def _reload_services(self, kind: str, items: Sequence[RemovalItem]) -> None:
        """Make services reload after our files are gone, or foreign ones are back."""
        if kind not in ("file", "original", "mask"):
            return
        names = {item.name for item in items}
        units.try_to_control("daemon-reload", limit_s=_LIMIT_S)
        for path in sorted(names & _DROP_INS.keys()):
            units.try_to_control("try-restart", _DROP_INS[path], limit_s=_LIMIT_S)
        drop_in = any(PurePosixPath(name).parent.name == f"{_DOCKER}.d" for name in names)
        # A restart of Docker ends containers, also those of others.
        if drop_in and self._docker is not None and not self._docker.running_containers():
            units.try_to_control("try-restart", _DOCKER, limit_s=_LIMIT_S)
        # Without an earlier file nothing is applied: a login may come through these addresses.
        if kind == "original" and any(name.startswith("/etc/netplan/") for name in names):
            runner.run(["netplan", "apply"], _LIMIT_S)


def _error_reason(error: Exception) -> str:
    name = getattr(error, "filename", None)
    return f"{name}: {errors.why(error)}" if name else errors.why(error)
