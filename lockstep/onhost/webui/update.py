"""Open WebUI under another image: its data are copied first, and return if the image fails.

usage: webui alone URL
       webui begin UNIT VOLUME IMAGE
       webui ready UNIT VOLUME IMAGE URL --main-pid PID
       webui ended UNIT
       webui restart|start UNIT
       webui snapshots VOLUME

The unit runs `alone` and `begin` before each start, `ready` until it serves, and `ended` after it.
Another listener at its port would read what people type there: `alone` refuses that, and `ready`
accepts only an answer of its own container. Before another image than the last one opens the data,
they are copied to /var/lib/lockstep-deploy/webui, or into the backup. If it does not serve, or
leaves a broken database, the previous unit file and data return, and systemd starts those. The
record is on disk, so that a killed host continues.

`restart` and `start` are for a deploy: if the former image serves, they fail with the reason.
`snapshots` prints JSON.

exit codes: 0 done; 1 it failed, or the unit is to start again; 2 wrong use
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from lockstep.onhost.core import (
    atomic_files,
    clock,
    errors,
    event_lines,
    http_client,
    layout,
    program_command_lines,
)
from lockstep.onhost.docker import docker_api
from lockstep.onhost.engine import foreign_listeners
from lockstep.onhost.engine.readiness import MainProcess
from lockstep.onhost.records import generations
from lockstep.onhost.records.restic_client import BackupSnapshot
from lockstep.onhost.system import listeners
from lockstep.onhost.systemd import units
from lockstep.onhost.webui import data, data_copies

#: Time for a start that migrates a database, seconds; one that ends is seen at once.
SERVES_S = 900.0
_RETURNS_S = 1800.0
_DOCKER_S = 20.0
# A rollback deploys at once. If its image never came, a later update must not use its copy.
_WANTED_S = 3600.0


def refuse_taken_port(paths: layout.Paths, url: str, container: str | None = None) -> None:
    """Raise Problem if anybody listens at its port, except its container if one is named."""
    listeners = foreign_listeners.listeners_at_url(url, paths)
    if listeners and container:
        container_facts = docker_api.Docker(paths.docker_socket, _DOCKER_S).container(container)
        listeners = [
            listener
            for listener in listeners
            if not (
                container_facts
                and _is_listener_of_container(container_facts["Id"], listener, paths)
            )
        ]
    if listeners:
        owners = " and ".join(
            foreign_listeners.listener_text(listener, paths.proc) for listener in listeners
        )
        raise errors.Problem(
            f"{owners} listens at {urllib.parse.urlsplit(url).netloc}, where Open WebUI is to "
            "answer, and reads what people type there. Remedy: stop it, then sudo systemctl "
            "restart of Open WebUI's unit; or another port (webui.port)"
        )


def _is_listener_of_container(
    container: str, listener: listeners.SocketOwner, paths: layout.Paths
) -> bool:
    """Tell whether a process of a container has it: Docker's control groups are named by its id."""
    for process in listener.processes:
        with contextlib.suppress(OSError):
            if container in (paths.proc / str(process) / "cgroup").read_text(encoding="utf-8"):
                return True
    return False


def prepare_data_for_image(paths: layout.Paths, unit: str, volume: str, image: str) -> None:
    """Copy or return the data before `image` opens them.

    Raises:
        errors.Problem: The unit is to start again, with its former file.
    """
    present_record, place = data_copies.load(paths), data.volume_folder(paths, volume)
    if place is None:
        return
    if present_record.update and (
        present_record.update.failure or present_record.update.to != image
    ):
        present_record = _restore_data_before_update(paths, unit, place, present_record, image)
    if (
        present_record.update is None
        and present_record.image != image
        and (place / data.DATABASE).exists()
    ):
        present_record = _copy_data_before_update(paths, unit, place, present_record, image)
    update = present_record.update
    if update and update.use is not None:
        data_copies.restore_copy(paths, place, update.use)
        data_copies.save(paths, replace(present_record, update=replace(update, use=None)))
        event_lines.say(f"Open WebUI has the data of copy {update.use}")


def _restore_data_before_update(
    paths: layout.Paths, unit: str, place: Path, present_record: data_copies.WebUiRecord, image: str
) -> data_copies.WebUiRecord:
    """Restore the data from before an update; return the record without that update."""
    update = present_record.update
    assert update is not None
    last = present_record.last
    if update.failure:
        _restore_unit_file(paths, unit, present_record)
        last = f"{update.to} {update.failure}; {present_record.image} is back, with its data"
    data_copies.restore_copy(paths, place, update.snapshot)
    present_record = replace(present_record, update=None, last=last)
    data_copies.save(paths, present_record)
    data_copies.remove_oldest_copies(paths)
    event_lines.say(f"Open WebUI has the data of before {update.to} again")
    if update.failure and image == update.to:
        raise errors.Problem(last)
    return present_record


def _copy_data_before_update(
    paths: layout.Paths, unit: str, place: Path, present_record: data_copies.WebUiRecord, image: str
) -> data_copies.WebUiRecord:
    """Copy the data before another image opens them; return the record with that update."""
    try:
        snapshot = data_copies.keep_copy(paths, place, present_record)
    except (errors.Problem, OSError) as error:
        if not present_record.unit:
            raise
        last = (
            f"{image} did not start, for the data cannot be copied: {error}; "
            f"{present_record.image} stays"
        )
        data_copies.save(paths, replace(present_record, last=last))
        _restore_unit_file(paths, unit, present_record)
        raise errors.Problem(last) from error
    where = snapshot.repository or data_copies.copied_data_folder(paths, snapshot.number).parent
    event_lines.say(f"copied Open WebUI's data: {where}")
    if not present_record.image:
        # Without a record of the earlier state there is no way back to it.
        return present_record
    wanted_copy = present_record.wanted_copy
    fits = wanted_copy and wanted_copy.image == image and time.time() < wanted_copy.until
    update = data_copies.Update(
        image, snapshot.number, wanted_copy.number if wanted_copy and fits else None
    )
    present_record = replace(present_record, update=update, wanted_copy=None)
    data_copies.save(paths, present_record)
    return present_record


def _unit_file(paths: layout.Paths, unit: str) -> Path:
    return paths.root / "etc/systemd/system" / unit


def _restore_unit_file(
    paths: layout.Paths, unit: str, present_record: data_copies.WebUiRecord
) -> None:
    path, text = _unit_file(paths, unit), "\n".join(present_record.unit)
    if path.read_text(encoding="utf-8") == text:
        return
    atomic_files.write(path, text)
    units.control_units("daemon-reload")


def accept_when_serving(
    paths: layout.Paths, unit: str, volume: str, image: str, url: str, alive: Callable[[], None]
) -> None:
    """Wait until it serves, and check after an update that its database is intact.

    Raises:
        errors.Problem: It does not serve, or the database is broken.
    """
    _wait_for_answer(url, alive)
    refuse_taken_port(paths, url, unit.removesuffix(".service"))
    present_record = data_copies.load(paths)
    lines = tuple(_unit_file(paths, unit).read_text(encoding="utf-8").split("\n"))
    place = data.volume_folder(paths, volume)
    if (present_record.update or present_record.image != image) and place:
        wrong = data.database_faults(place / data.DATABASE)
        if wrong:
            raise errors.Problem(f"its database is broken: {wrong}")
        alive()
    number = int((generations.last_written_record(paths) or {}).get("number", 0))
    now = data_copies.WebUiRecord(image, lines, number, last=present_record.last)
    if present_record.update:
        now = replace(now, last="")
    if now != present_record:
        data_copies.save(paths, now)
        data_copies.remove_oldest_copies(paths)


def _wait_for_answer(url: str, alive: Callable[[], None]) -> None:
    began = clock.now()
    while True:
        alive()
        try:
            with http_client.open_answer(url, 5) as response:
                if response.status < 400:
                    return
                why = response.reason
        except (*http_client.FAULTS, ValueError) as error:
            why = errors.why(error)
        if clock.now() - began >= SERVES_S:
            raise errors.Problem(f"{url} did not answer within {SERVES_S:.0f} s: {why}")
        clock.sleep(0.5)


def undo_failed_update(paths: layout.Paths, unit: str, result: str) -> None:
    """Restore image and data if the unit failed during an update.

    `result` is systemd's word for how it ended ($SERVICE_RESULT).
    """
    present_record = data_copies.load(paths)
    # Stopped on purpose, or with the host: the next start continues.
    if present_record.update is None or present_record.update.failure or result == "success":
        return
    why = {"timeout": "did not serve in time"}.get(result, "did not serve with its database open")
    data_copies.save(
        paths, replace(present_record, update=replace(present_record.update, failure=why))
    )
    _restore_unit_file(paths, unit, present_record)
    event_lines.say(
        f"{present_record.update.to} {why}: {present_record.image} returns, with its data"
    )


def start_or_await_return(paths: layout.Paths, verb: str, unit: str) -> None:
    """Start a unit; if an update fails, wait for the previous image and report what happened."""
    earlier_record = data_copies.load(paths)
    try:
        units.control_units(verb, unit, limit_s=3600)
        return
    except errors.Problem:
        present_record, began = data_copies.load(paths), clock.now()
        if present_record.update is None and present_record.last == earlier_record.last:
            raise
    while present_record.update or units.units_by_name([unit])[unit].active != "active":
        if clock.now() - began >= _RETURNS_S:
            raise errors.Problem(f"{unit} does not come back. Remedy: journalctl -u {unit}")
        clock.sleep(1)
        present_record = data_copies.load(paths)
    raise errors.Problem(f"{present_record.last}. Remedy: journalctl -u {unit} says why it failed")


def copies_with_later_chats(paths: layout.Paths, volume: str) -> dict[str, object]:
    """Return the present image, and each copy with the number of chats changed since."""
    place = data.volume_folder(paths, volume)
    copies = [
        {
            **asdict(snapshot),
            "date": snapshot.date,
            "chats_since": data.count_chats_since(place, snapshot.at) if place else None,
        }
        for snapshot in data_copies.complete_copies(paths)
    ]
    return {"image": data_copies.load(paths).image, "snapshots": copies}


def restore_data_of_backup(
    paths: layout.Paths, unit: str, volume: str, saved_snapshot: BackupSnapshot, target_path: Path
) -> None:
    """Restore the data of a backup, whose files are in `target_path`.

    If they do not serve, the present ones return.
    """
    present_record, place = data_copies.load(paths), data.volume_folder(paths, volume)
    if place is None or not present_record.image:
        raise errors.Problem("Open WebUI has never served here. Remedy: deploy first")
    restored_snapshot = data_copies.make_folder_copy(
        paths, data.data_folder_in_backup(target_path), saved_snapshot
    )
    units.control_units("stop", unit, limit_s=300)
    snapshot = data_copies.keep_copy(paths, place, present_record)
    update = data_copies.Update(present_record.image, snapshot.number, restored_snapshot.number)
    data_copies.save(paths, replace(present_record, update=update, wanted_copy=None))
    start_or_await_return(paths, "start", unit)


def select_copy_for_image(paths: layout.Paths, image: str, number: int) -> None:
    """Select a copy for an image that is to come; raise Problem if there is no such copy."""
    if number not in [snapshot.number for snapshot in data_copies.complete_copies(paths)]:
        raise errors.Problem(f"there is no copy {number} of Open WebUI's data")
    wanted_copy = data_copies.WantedCopy(image, number, time.time() + _WANTED_S)
    data_copies.save(paths, replace(data_copies.load(paths), wanted_copy=wanted_copy))


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Run the command line; see the module's docstring."""
    paths = paths or layout.Paths()
    parser = program_command_lines.parser(__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    words = {
        "alone": ("url",),
        "begin": ("unit", "volume", "image"),
        "ready": ("unit", "volume", "image", "url"),
        "ended": ("unit",),
        "restart": ("unit",),
        "start": ("unit",),
        "snapshots": ("volume",),
    }
    for verb, names in words.items():
        of_verb = verbs.add_parser(verb)
        for name in names:
            of_verb.add_argument(name)
        if verb == "ready":
            of_verb.add_argument("--main-pid", type=int, required=True)
    options = parser.parse_args(argv)
    if options.verb == "alone":
        refuse_taken_port(paths, options.url)
    elif options.verb == "begin":
        prepare_data_for_image(paths, options.unit, options.volume, options.image)
    elif options.verb == "ready":
        process = MainProcess(options.main_pid)
        accept_when_serving(
            paths, options.unit, options.volume, options.image, options.url, process.check_alive
        )
    elif options.verb == "ended":
        undo_failed_update(paths, options.unit, os.environ.get("SERVICE_RESULT", "success"))
    elif options.verb == "snapshots":
        json.dump(copies_with_later_chats(paths, options.volume), sys.stdout)
    else:
        start_or_await_return(paths, options.verb, options.unit)
    return errors.EXIT_DONE
