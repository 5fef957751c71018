"""Open WebUI under another image: its data are copied first, and return where the image fails.

usage: webui alone URL
       webui begin UNIT VOLUME IMAGE
       webui ready UNIT VOLUME IMAGE URL --main-pid PID
       webui ended UNIT
       webui restart|start UNIT
       webui snapshots VOLUME
       webui use IMAGE NUMBER

The unit runs `alone` and `begin` before each start, `ready` until it serves, and `ended` after it.
Whoever else listens at its port would read what people type there: `alone` refuses that, and
`ready` takes an answer of its own container alone. An image
that is another one than opened the data last finds them copied to /var/lib/lockstep-deploy/webui,
or into the backup. Where it does not serve, or leaves a broken database, the unit's file and the
data of before return, and systemd starts those. The record is on disk, so that a killed host goes
on with it.

`restart` and `start` are for a deploy: they fail with what happened, when the former image serves.
`snapshots` prints JSON. `use` has IMAGE, when it comes in the place of another one, begin with the
data of copy NUMBER; what there is then is copied as well.

exit codes: 0 done; 1 it failed, or the unit is to start again; 2 wrong use
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from lockstep.onhost.core import atomic, clock, errors, layout, output, program, runner
from lockstep.onhost.docker import docker_api
from lockstep.onhost.engine import port
from lockstep.onhost.engine.ready import MainProcess
from lockstep.onhost.records import generations
from lockstep.onhost.records.restic import Saved
from lockstep.onhost.system import listeners
from lockstep.onhost.systemd import units
from lockstep.onhost.webui import data, record

#: Time for a start that migrates a database, seconds; one that ends is seen at once.
SERVES_S = 900.0
_RETURNS_S = 1800.0
_DOCKER_S = 20.0
# A rollback deploys at once. What one asked for that never came is not done by a later update.
_WANTED_S = 3600.0


def alone(paths: layout.Paths, url: str, container: str | None = None) -> None:
    """Problem where anybody listens at its port, but for its container where one is named."""
    others = port.listening(url, paths)
    if others and container:
        found = docker_api.Docker(paths.docker_socket, _DOCKER_S).container(container)
        others = [each for each in others if not (found and _is_in(found["Id"], each, paths))]
    if others:
        who = " and ".join(port.words(each, paths.proc) for each in others)
        raise errors.Problem(
            f"{who} listens at {urllib.parse.urlsplit(url).netloc}, where Open WebUI is to answer, "
            "and reads what people type there. Remedy: stop it, then sudo systemctl restart of "
            "Open WebUI's unit; or another port (webui.port)"
        )


def _is_in(container: str, listener: listeners.Listener, paths: layout.Paths) -> bool:
    """Whether a process of a container has it: Docker's control groups are named by its id."""
    for process in listener.processes:
        with contextlib.suppress(OSError):
            if container in (paths.proc / str(process) / "cgroup").read_text(encoding="utf-8"):
                return True
    return False


def begin(paths: layout.Paths, unit: str, volume: str, image: str) -> None:
    """Copy or return the data before `image` opens them.

    Problem when the unit is to start again, with its former file.
    """
    known, place = record.load(paths), data.folder(paths, volume)
    if place is None:
        return
    if known.update and (known.update.failed or known.update.to != image):
        known = _returned(paths, unit, place, known, image)
    if known.update is None and known.image != image and (place / data.DATABASE).exists():
        known = _kept(paths, unit, place, known, image)
    update = known.update
    if update and update.use is not None:
        record.put_back(paths, place, update.use)
        record.save(paths, replace(known, update=replace(update, use=None)))
        output.say(f"Open WebUI has the data of copy {update.use}")


def _returned(
    paths: layout.Paths, unit: str, place: Path, known: record.Record, image: str
) -> record.Record:
    """Put the data of before an update back; the record without that update."""
    update = known.update
    assert update is not None
    last = known.last
    if update.failed:
        _unit_back(paths, unit, known)
        last = f"{update.to} {update.failed}; {known.image} is back, with its data"
    record.put_back(paths, place, update.snapshot)
    known = replace(known, update=None, last=last)
    record.save(paths, known)
    record.forget_old(paths)
    output.say(f"Open WebUI has the data of before {update.to} again")
    if update.failed and image == update.to:
        raise errors.Problem(last)
    return known


def _kept(
    paths: layout.Paths, unit: str, place: Path, known: record.Record, image: str
) -> record.Record:
    """Copy the data before another image opens them; the record with that update."""
    try:
        made = record.keep(paths, place, known)
    except (errors.Problem, OSError) as error:
        if not known.unit:
            raise
        last = f"{image} did not start, for the data cannot be copied: {error}; {known.image} stays"
        record.save(paths, replace(known, last=last))
        _unit_back(paths, unit, known)
        raise errors.Problem(last) from error
    where = made.repository or record.kept_data(paths, made.number).parent
    output.say(f"copied Open WebUI's data: {where}")
    if not known.image:
        # Without a record of what was there before there is no way back to it.
        return known
    wanted = known.wanted
    fits = wanted and wanted.image == image and time.time() < wanted.until
    update = record.Update(image, made.number, wanted.number if wanted and fits else None)
    known = replace(known, update=update, wanted=None)
    record.save(paths, known)
    return known


def _unit_file(paths: layout.Paths, unit: str) -> Path:
    return paths.root / "etc/systemd/system" / unit


def _unit_back(paths: layout.Paths, unit: str, known: record.Record) -> None:
    path, text = _unit_file(paths, unit), "\n".join(known.unit)
    if path.read_text(encoding="utf-8") == text:
        return
    atomic.write(path, text)
    runner.must("systemctl", "daemon-reload", timeout=120)


def ready(
    paths: layout.Paths, unit: str, volume: str, image: str, url: str, alive: Callable[[], None]
) -> None:
    """Wait until it serves, and see after an update that its database is whole.

    Problem when it does not serve, or the database is broken.
    """
    _wait(url, alive)
    alone(paths, url, unit.removesuffix(".service"))
    known = record.load(paths)
    lines = tuple(_unit_file(paths, unit).read_text(encoding="utf-8").split("\n"))
    place = data.folder(paths, volume)
    if (known.update or known.image != image) and place:
        wrong = data.fault(place / data.DATABASE)
        if wrong:
            raise errors.Problem(f"its database is broken: {wrong}")
        alive()
    number = int((generations.deployed(paths) or {}).get("number", 0))
    now = record.Record(image, lines, number, last=known.last)
    if known.update:
        now = replace(now, last="")
    if now != known:
        record.save(paths, now)
        record.forget_old(paths)


def _wait(url: str, alive: Callable[[], None]) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    began = clock.now()
    while True:
        alive()
        try:
            with opener.open(url, timeout=5):
                return
        except (OSError, ValueError) as error:
            if clock.now() - began >= SERVES_S:
                raise errors.Problem(
                    f"{url} did not answer within {SERVES_S:.0f} s: {errors.why(error)}"
                ) from error
        clock.sleep(0.5)


def ended(paths: layout.Paths, unit: str, result: str) -> None:
    """Have image and data return, where an update was under way and the unit failed.

    `result` is systemd's word for how it ended ($SERVICE_RESULT).
    """
    known = record.load(paths)
    # Stopped on purpose, or with the host: the next start goes on.
    if known.update is None or known.update.failed or result == "success":
        return
    why = {"timeout": "did not serve in time"}.get(result, "did not serve with its database open")
    record.save(paths, replace(known, update=replace(known.update, failed=why)))
    _unit_back(paths, unit, known)
    output.say(f"{known.update.to} {why}: {known.image} returns, with its data")


def started(paths: layout.Paths, verb: str, unit: str) -> None:
    """Start a unit; where an update fails, wait for the image of before and say what happened."""
    before = record.load(paths)
    done = runner.run(["systemctl", verb, "--", unit], timeout=3600)
    if done.returncode == 0:
        return
    known, began = record.load(paths), clock.now()
    if known.update is None and known.last == before.last:
        raise errors.Problem(done.stderr.strip())
    while known.update or units.show([unit])[unit].active != "active":
        if clock.now() - began >= _RETURNS_S:
            raise errors.Problem(f"{unit} does not come back. Remedy: journalctl -u {unit}")
        clock.sleep(1)
        known = record.load(paths)
    raise errors.Problem(f"{known.last}. Remedy: journalctl -u {unit} says why it failed")


def listed(paths: layout.Paths, volume: str) -> dict[str, object]:
    """The present image, and each copy with the chats that have changed since."""
    place = data.folder(paths, volume)
    copies = [
        {
            **asdict(each),
            "date": each.date,
            "chats_since": data.chats_since(place, each.at) if place else None,
        }
        for each in record.snapshots(paths)
    ]
    return {"image": record.load(paths).image, "snapshots": copies}


def restored(paths: layout.Paths, unit: str, volume: str, saved: Saved, unpacked: Path) -> None:
    """Begin again with data of a backup, whose files are in `unpacked`.

    Where they do not serve, the present ones return.
    """
    known, place = record.load(paths), data.folder(paths, volume)
    if place is None or not known.image:
        raise errors.Problem("Open WebUI has never served here. Remedy: deploy first")
    chosen = record.take(paths, data.within(unpacked), saved)
    done = runner.run(["systemctl", "stop", "--", unit], timeout=300)
    if done.returncode:
        raise errors.Problem(done.stderr.strip())
    made = record.keep(paths, place, known)
    update = record.Update(known.image, made.number, chosen.number)
    record.save(paths, replace(known, update=update, wanted=None))
    started(paths, "start", unit)


def use(paths: layout.Paths, image: str, number: int) -> None:
    """Have an image begin with a copy when it comes. Problem when there is no such copy."""
    if number not in [each.number for each in record.snapshots(paths)]:
        raise errors.Problem(f"there is no copy {number} of Open WebUI's data")
    wanted = record.Wanted(image, number, time.time() + _WANTED_S)
    record.save(paths, replace(record.load(paths), wanted=wanted))


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Command line; see the module's docstring."""
    paths = paths or layout.Paths()
    parser = program.parser(__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    words = {
        "alone": ("url",),
        "begin": ("unit", "volume", "image"),
        "ready": ("unit", "volume", "image", "url"),
        "ended": ("unit",),
        "restart": ("unit",),
        "start": ("unit",),
        "snapshots": ("volume",),
        "use": ("image", "number"),
    }
    for verb, names in words.items():
        of_verb = verbs.add_parser(verb)
        for name in names:
            of_verb.add_argument(name, type=int if name == "number" else str)
        if verb == "ready":
            of_verb.add_argument("--main-pid", type=int, required=True)
    given = parser.parse_args(argv)
    if given.verb == "alone":
        alone(paths, given.url)
    elif given.verb == "begin":
        begin(paths, given.unit, given.volume, given.image)
    elif given.verb == "ready":
        process = MainProcess(given.main_pid)
        ready(paths, given.unit, given.volume, given.image, given.url, process.check)
    elif given.verb == "ended":
        ended(paths, given.unit, os.environ.get("SERVICE_RESULT", "success"))
    elif given.verb == "snapshots":
        json.dump(listed(paths, given.volume), sys.stdout)
    elif given.verb == "use":
        use(paths, given.image, given.number)
    else:
        started(paths, given.verb, given.unit)
    return errors.EXIT_DONE
