"""Back up the data that only this Spark has: Open WebUI's, keys, secrets, records, results.

usage: backup now [--nightly]
       backup list
       backup restore SNAPSHOT [--from PLACE]
       backup check

`now` puts a snapshot into the host's own restic repository and into the other repositories of the
inventory, and forgets snapshots that the policy does not keep. The timer's snapshots are
`--nightly`. `now` fails if the host's own repository is damaged. `list` prints JSON. `restore`
unpacks a snapshot, puts keys and accepted results in their place, and restarts Open WebUI with its
data. If that data does not serve, the present data returns. `check` reads every byte of every
repository.

exit codes: 0 done; 1 it failed, with the reason; 2 wrong use
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from lockstep.onhost.core import (
    atomic_files,
    errors,
    event_lines,
    layout,
    program_command_lines,
    runner,
)
from lockstep.onhost.records import deploy_lock, generations
from lockstep.onhost.records.restic_client import (
    BackupSnapshot,
    Config,
    NoBackupYet,
    RepositoryInUse,
    ResticRepository,
    backup_settings,
)
from lockstep.onhost.webui import data, data_copies, update

#: Tag of snapshots that the policy keeps, and the name of the timer's.
TAG = "nightly"
#: Name and second tag of the other snapshots.
BY_HAND = "by hand"
#: A copy on the same disk is lost together with the original.
ONE_DISK = (
    "warning: this backup lies on the disk of what it is a backup of, and is lost with it. "
    "Remedy: name a place elsewhere in `backup.to`, and deploy (`lockstep help backup`)"
)


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Run the command line; see the module's docstring."""
    paths = paths or layout.Paths()
    parser = program_command_lines.parser(__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("list", "check"):
        verbs.add_parser(verb)
    verbs.add_parser("now").add_argument("--nightly", action="store_true")
    restoring = verbs.add_parser("restore")
    restoring.add_argument("snapshot")
    restoring.add_argument("--from", dest="place", default="")
    options = parser.parse_args(argv)
    backup_config = backup_settings(paths)
    if backup_config is None:
        raise errors.Problem("this host has no backup. Remedy: set backup.enabled, and deploy")
    if options.verb == "now":
        back_up_everywhere(paths, backup_config, by_hand=not options.nightly)
    elif options.verb == "list":
        json.dump(snapshots_by_place(paths, backup_config), sys.stdout)
    elif options.verb == "check":
        check_repositories(paths, backup_config)
    else:
        with deploy_lock.keep_deploys_away("restore of a backup", paths):
            restore(paths, backup_config, options.snapshot, options.place)
    return errors.EXIT_DONE


def back_up_everywhere(paths: layout.Paths, backup_config: Config, *, by_hand: bool) -> None:
    """Back up, here and everywhere else; raise Problem if one place has no backup of now."""
    own = ResticRepository(paths)
    own.make_repository()
    target_path = paths.state / "backup-now"
    data.remove_folder(target_path)
    target_path.mkdir(mode=0o700)
    try:
        place = data.volume_folder(paths, backup_config.volume) if backup_config.volume else None
        if place:
            data.copy_folder(place, target_path / "data", live=True)
        backed_up_paths = [
            target_path,
            *(path for path in _backed_up_paths(paths) if path.exists()),
        ]
        run_record = data_copies.load(paths)
        tags = [
            TAG,
            *([BY_HAND] if by_hand else []),
            f"generation={generations.newest_number(paths)}",
            f"image={run_record.image}",
        ]
        snapshot_id, at = (
            own.save_snapshot(backed_up_paths, tags, exclude=[own.password]),
            time.time(),
        )
    finally:
        data.remove_folder(target_path)
    try:
        # Existing content is not written again, even if it is damaged, so it must be checked.
        own.verify_every_byte()
    except RepositoryInUse:
        raise
    except errors.Problem as error:
        raise errors.Problem(
            f"{error}. So no backup there can be trusted, the one of now neither. Remedy: move "
            f"{own.place} away, and back up again: that makes a new one"
        ) from error
    event_lines.say(
        f"backed up to {own.place}: {snapshot_id[:8]}; its password is in {own.password}"
    )
    _remove_old_snapshots(own, backup_config)
    wrong = []
    for copy_place in backup_config.to:
        copy_repository = ResticRepository(paths, copy_place)
        try:
            copy_repository.copy_missing_snapshots(own)
            _remove_old_snapshots(copy_repository, backup_config)
            event_lines.say(f"backed up to {copy_place}")
        except (errors.Problem, OSError) as error:
            wrong.append(str(error))
    if wrong:
        raise errors.Problem("; ".join(wrong))
    atomic_files.write_json(paths.backup_record, {"at": at}, mode=0o600)
    if all(copy_place.is_on_host_disk for copy_place in _repositories(paths, backup_config)):
        event_lines.say(ONE_DISK)


def snapshots_by_place(paths: layout.Paths, backup_config: Config) -> dict[str, object]:
    """Return each place with its snapshots and the number of chats changed since, or its fault."""
    place = data.volume_folder(paths, backup_config.volume) if backup_config.volume else None
    places: dict[str, dict[str, object]] = {}
    for repository in _repositories(paths, backup_config):
        try:
            places[repository.place] = {
                "snapshots": [
                    _snapshot_document(snapshot, place) for snapshot in repository.snapshots()
                ]
            }
        except NoBackupYet:
            places[repository.place] = {"none_yet": True, "snapshots": []}
        except errors.Problem as error:
            places[repository.place] = {"fault": str(error), "snapshots": []}
        places[repository.place]["on_this_disk"] = repository.is_on_host_disk
    return {"password": str(ResticRepository(paths).password), "places": places}


def check_repositories(paths: layout.Paths, backup_config: Config) -> None:
    """Have restic check every repository; raise Problem with the faults of all."""
    wrong = []
    for repository in _repositories(paths, backup_config):
        try:
            repository.verify_every_byte()
            event_lines.say(f"{repository.place}: whole")
        except errors.Problem as error:
            wrong.append(str(error))
    if wrong:
        raise errors.Problem("; ".join(wrong))


def restore(paths: layout.Paths, backup_config: Config, snapshot: str, place: str) -> None:
    """Return to a snapshot; raise Problem if none has that name, or its data does not serve."""
    source = ResticRepository(paths, place)
    fits = [
        snapshot_saved
        for snapshot_saved in source.snapshots()
        if snapshot_saved.id.startswith(snapshot)
    ]
    if len(fits) != 1:
        raise errors.Problem(f"{len(fits)} snapshots in {source.place} begin with {snapshot}")
    target_path = paths.state / "backup-restored"
    data.remove_folder(target_path)
    target_path.mkdir(mode=0o700)
    try:
        try:
            source.restore_snapshot(fits[0].id, target_path)
        except errors.Problem as error:
            raise errors.Problem(
                f"{error}. Nothing was put back. Remedy: another snapshot, or another place with "
                "--from: `lockstep backup list`"
            ) from error
        for path in _restored_paths(paths):
            _restore_file(target_path / str(path).lstrip("/"), path)
        if backup_config.volume:
            update.restore_data_of_backup(
                paths, backup_config.unit, backup_config.volume, fits[0], target_path
            )
    finally:
        data.remove_folder(target_path)
    event_lines.say(f"restored {fits[0].id[:8]}")


def _repositories(paths: layout.Paths, backup_config: Config) -> list[ResticRepository]:
    return [
        ResticRepository(paths),
        *(ResticRepository(paths, place) for place in backup_config.to),
    ]


def _backed_up_paths(paths: layout.Paths) -> list[Path]:
    """Return the files and folders that a backup includes."""
    return [*_restored_paths(paths), paths.secrets, paths.generations, paths.webui]


def _restored_paths(paths: layout.Paths) -> list[Path]:
    """Return the files that a restore puts back; the next deploy makes the others anew."""
    return [paths.gateway_keys, paths.secrets / "open-webui.env", paths.accepted_speeds]


def _restore_file(source: Path, to: Path) -> None:
    """Put one file back whole, with its owner and mode; a file that the backup lacks stays."""
    if not source.exists():
        return
    to.parent.mkdir(parents=True, exist_ok=True)
    new = to.with_name(f"{to.name}.new")
    result = runner.run(["cp", "--archive", "--", str(source), str(new)])
    if result.returncode:
        raise errors.Problem(f"{to} cannot be put back: {result.stderr.strip()}")
    new.replace(to)


def _remove_old_snapshots(repository: ResticRepository, backup_config: Config) -> None:
    repository.forget_snapshots_beyond_policy(TAG, backup_config.keep)
    repository.forget_snapshots_beyond_policy(data_copies.TAG, {"last": data_copies.KEPT})


def _snapshot_document(snapshot: BackupSnapshot, place: Path | None) -> dict[str, object]:
    return {
        "id": snapshot.id[:8],
        "at": snapshot.at,
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(snapshot.at)),
        "why": next((tag for tag in (data_copies.TAG, BY_HAND) if tag in snapshot.tags), TAG),
        "generation": int(snapshot.tag_value("generation") or 0),
        "image": snapshot.tag_value("image"),
        "chats_since": data.count_chats_since(place, snapshot.at) if place else None,
    }
