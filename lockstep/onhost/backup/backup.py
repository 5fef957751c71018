"""Back up what this Spark alone has: Open WebUI's data, keys, secrets, records, accepted results.

usage: backup now [--nightly]
       backup list
       backup restore SNAPSHOT [--from PLACE]
       backup check

`now` puts a snapshot into the host's own restic repository and into those that the inventory names
besides, and forgets what the policy does not keep; the timer's are `--nightly`. It fails where the
host's own repository is damaged. `list` prints JSON.
`restore` unpacks a snapshot, puts keys and accepted results in their place, and has Open WebUI
begin again with its data; where these do not serve, the present ones return. `check` reads
every byte of every repository.

exit codes: 0 done; 1 it failed, with the reason; 2 wrong use
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from lockstep.onhost.core import atomic, errors, layout, output, program, runner
from lockstep.onhost.records import deploys, generations
from lockstep.onhost.records.restic import Config, NoneYet, Repository, Saved, config
from lockstep.onhost.webui import data, record, update

#: Of the snapshots that the policy keeps, and what the timer's are called.
TAG = "nightly"
#: What the others of them are called, and their second tag.
BY_HAND = "by hand"
#: A copy on the disk of what it is a copy of is none once the disk is lost.
ONE_DISK = (
    "warning: this backup lies on the disk of what it is a backup of, and is lost with it. "
    "Remedy: name a place elsewhere in `backup.to`, and deploy (`lockstep help backup`)"
)


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Command line; see the module's docstring."""
    paths = paths or layout.Paths()
    parser = program.parser(__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("list", "check"):
        verbs.add_parser(verb)
    verbs.add_parser("now").add_argument("--nightly", action="store_true")
    restoring = verbs.add_parser("restore")
    restoring.add_argument("snapshot")
    restoring.add_argument("--from", dest="place", default="")
    given = parser.parse_args(argv)
    found = config(paths)
    if found is None:
        raise errors.Problem("this host has no backup. Remedy: set backup.enabled, and deploy")
    if given.verb == "now":
        now(paths, found, by_hand=not given.nightly)
    elif given.verb == "list":
        json.dump(listed(paths, found), sys.stdout)
    elif given.verb == "check":
        check(paths, found)
    else:
        with deploys.none_beside("restore of a backup", paths):
            restore(paths, found, given.snapshot, given.place)
    return errors.EXIT_DONE


def now(paths: layout.Paths, found: Config, *, by_hand: bool) -> None:
    """Back up, here and everywhere else. Problem when one place has no backup of now."""
    own = Repository(paths)
    own.make()
    staged = paths.state / "backup-now"
    data.remove(staged)
    staged.mkdir(mode=0o700)
    try:
        place = data.folder(paths, found.volume) if found.volume else None
        if place:
            data.copy(place, staged / "data", live=True)
        what = [staged, *(path for path in _records(paths) if path.exists())]
        known = record.load(paths)
        tags = [
            TAG,
            *([BY_HAND] if by_hand else []),
            f"generation={generations.number(paths)}",
            f"image={known.image}",
        ]
        made, at = own.save(what, tags, exclude=[own.password]), time.time()
    finally:
        data.remove(staged)
    try:
        # What is there already is not written again, also where it is damaged.
        own.check()
    except errors.Problem as error:
        raise errors.Problem(
            f"{error}. So no backup there can be trusted, the one of now neither. Remedy: move "
            f"{own.place} away, and back up again: that makes a new one"
        ) from error
    output.say(f"backed up to {own.place}: {made[:8]}; its password is in {own.password}")
    _kept(own, found)
    wrong = []
    for each in found.to:
        other = Repository(paths, each)
        try:
            other.copy_from(own)
            _kept(other, found)
            output.say(f"backed up to {each}")
        except (errors.Problem, OSError) as error:
            wrong.append(str(error))
    if wrong:
        raise errors.Problem("; ".join(wrong))
    atomic.write_json(paths.backup_record, {"at": at}, mode=0o600)
    if all(each.on_this_disk for each in _repositories(paths, found)):
        output.say(ONE_DISK)


def listed(paths: layout.Paths, found: Config) -> dict[str, object]:
    """Every place with its snapshots, and the chats that have changed since; or what is wrong."""
    place = data.folder(paths, found.volume) if found.volume else None
    places: dict[str, dict[str, object]] = {}
    for each in _repositories(paths, found):
        try:
            places[each.place] = {"snapshots": [_shown(one, place) for one in each.saved()]}
        except NoneYet:
            places[each.place] = {"none_yet": True, "snapshots": []}
        except errors.Problem as error:
            places[each.place] = {"fault": str(error), "snapshots": []}
        places[each.place]["on_this_disk"] = each.on_this_disk
    return {"password": str(Repository(paths).password), "places": places}


def check(paths: layout.Paths, found: Config) -> None:
    """Have restic check every repository. Problem with what is wrong with any."""
    wrong = []
    for each in _repositories(paths, found):
        try:
            each.check()
            output.say(f"{each.place}: whole")
        except errors.Problem as error:
            wrong.append(str(error))
    if wrong:
        raise errors.Problem("; ".join(wrong))


def restore(paths: layout.Paths, found: Config, snapshot: str, place: str) -> None:
    """Return to a snapshot. Problem when there is none of that name, or its data do not serve."""
    source = Repository(paths, place)
    fits = [each for each in source.saved() if each.id.startswith(snapshot)]
    if len(fits) != 1:
        raise errors.Problem(f"{len(fits)} snapshots in {source.place} begin with {snapshot}")
    unpacked = paths.state / "backup-restored"
    data.remove(unpacked)
    unpacked.mkdir(mode=0o700)
    try:
        try:
            source.unpack(fits[0].id, unpacked)
        except errors.Problem as error:
            raise errors.Problem(
                f"{error}. Nothing was put back. Remedy: another snapshot, or another place with "
                "--from: `lockstep backup list`"
            ) from error
        for path in _returning(paths):
            _put(unpacked / str(path).lstrip("/"), path)
        if found.volume:
            update.restored(paths, found.unit, found.volume, fits[0], unpacked)
    finally:
        data.remove(unpacked)
    output.say(f"restored {fits[0].id[:8]}")


def _repositories(paths: layout.Paths, found: Config) -> list[Repository]:
    return [Repository(paths), *(Repository(paths, each) for each in found.to)]


def _records(paths: layout.Paths) -> list[Path]:
    """Files and folders that go along."""
    return [*_returning(paths), paths.secrets, paths.generations, paths.webui]


def _returning(paths: layout.Paths) -> list[Path]:
    """Those that a restore puts back; the others tell of a deploy, and its next one makes them."""
    return [
        *(paths.gateway_keys, paths.secrets / "open-webui.env"),
        *(paths.accepted, paths.senses),
    ]


def _put(source: Path, to: Path) -> None:
    """Put one file back whole, with its owner and mode; what the backup lacks stays."""
    if not source.exists():
        return
    to.parent.mkdir(parents=True, exist_ok=True)
    new = to.with_name(f"{to.name}.new")
    done = runner.run(["cp", "--archive", "--", str(source), str(new)])
    if done.returncode:
        raise errors.Problem(f"{to} cannot be put back: {done.stderr.strip()}")
    new.replace(to)


def _kept(repository: Repository, found: Config) -> None:
    repository.forget_old(TAG, found.keep)
    repository.forget_old(record.TAG, {"last": record.KEPT})


def _shown(one: Saved, place: Path | None) -> dict[str, object]:
    return {
        "id": one.id[:8],
        "at": one.at,
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(one.at)),
        "why": next((tag for tag in (record.TAG, BY_HAND) if tag in one.tags), TAG),
        "generation": int(one.tag("generation") or 0),
        "image": one.tag("image"),
        "chats_since": data.chats_since(place, one.at) if place else None,
    }
