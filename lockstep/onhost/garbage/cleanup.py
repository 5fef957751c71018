"""Remove content that neither the present nor the previous generation of this host needs.

usage: cleanup plan [--keep N]                     print as JSON what would go, and its digest
       cleanup remove [--keep N] --digest DIGEST   remove it, if the digest is still the same

N generations stay (default 2: the present and the previous one). Only content that a deploy put
here is considered. Running content stays, and so does content that `current` names or that a deploy
under way will use. Refused while a deploy or a switch is under way.

exit codes: 0 done, 1 something could not be removed, or there is no record of a generation;
            2 wrong use, 75 a deploy or a switch is under way
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lockstep.onhost.core import errors, layout, program_command_lines, switch_lock
from lockstep.onhost.docker import docker_api
from lockstep.onhost.garbage import unneeded_content
from lockstep.onhost.images import image_blob_store
from lockstep.onhost.records import audit_log, deploy_lock
from lockstep.onhost.switching import hot_change_under_way
from lockstep.onhost.systemd import transient_job
from lockstep.onhost.weights import own_snapshots

KEEP = 2


def refuse_while_busy(paths: layout.Paths) -> None:
    """Raise Problem (75) while a deploy or its job runs here."""
    if other_deploy := deploy_lock.lock_holder(paths.deploy_lock):
        raise _busy_problem(str(other_deploy))
    refuse_jobs(paths)


def refuse_jobs(paths: layout.Paths) -> None:
    """Raise Problem (75) while a job that a deploy began runs here."""
    busy = transient_job.running_jobs()
    if busy or hot_change_under_way.load(paths).rollout is not None:
        raise _busy_problem(", ".join(busy) or "a rollout")


def _busy_problem(activity: str) -> errors.Problem:
    return errors.Problem(
        f"a deploy is under way ({activity}); nothing was removed. Remedy: wait for its end",
        errors.EXIT_LOCKED,
    )


def remove(
    paths: layout.Paths, docker: docker_api.Docker, item: unneeded_content.UnneededItem
) -> None:
    """Remove one item; raise OSError or DockerError if that cannot be done."""
    if item.kind == "image":
        _remove_image(paths, docker, item)
    elif item.kind == "weights":
        note, cache_dir = item.places
        with act_as_owner(cache_dir):
            own_snapshots.remove_snapshot(note, cache_dir)
    else:
        for place in item.places:
            with act_as_owner(place.parent):
                if place.is_dir() and not place.is_symlink():
                    shutil.rmtree(place)
                else:
                    place.unlink(missing_ok=True)


def _remove_image(
    paths: layout.Paths, docker: docker_api.Docker, item: unneeded_content.UnneededItem
) -> None:
    # With its last tag an image also loses its digests in the same repository.
    for name in (docker_api.hold_tag(item.name), item.name):
        docker.request_json("DELETE", f"/images/{name}", none=(404,))
    digest = item.name.partition("@")[2]
    image_blob_store.remove_image(paths.layers, digest.removeprefix("sha256:"))
    name = digest.replace(":", "-")
    for folder in ("images", "questions"):
        (paths.root / "var/cache/lockstep" / folder / f"{name}.json").unlink(missing_ok=True)
    for note in item.places:
        note.unlink(missing_ok=True)


@contextmanager
def act_as_owner(folder: Path) -> Iterator[None]:
    """Take only the rights of a folder's owner: engines could have put links there for us."""
    stat = folder.stat()
    group, user, groups = os.getegid(), os.geteuid(), os.getgroups()
    if user == 0:
        os.setgroups([])
    os.setegid(stat.st_gid)
    os.seteuid(stat.st_uid)
    try:
        yield
    finally:
        os.seteuid(user)
        os.setegid(group)
        if user == 0:
            os.setgroups(groups)


def remove_unneeded(
    paths: layout.Paths, docker: docker_api.Docker, keep: int, digest: str
) -> dict[str, Any]:
    """Remove what is unneeded; return the removed and the failed items, these with the reason.

    Raises:
        Problem: The plan is not the one with this digest, which somebody agreed to.
    """
    plan = unneeded_content.plan_cleanup(paths, docker, keep)
    if plan.digest != digest:
        raise errors.Problem(
            "other content is unneeded now than in the list that was shown; nothing was removed. "
            "Remedy: `lockstep gc` again"
        )
    gone_items: list[dict[str, Any]] = []
    stayed_items: list[dict[str, Any]] = []
    for item in plan.items:
        try:
            remove(paths, docker, item)
            gone_items.append(_item_entry(item))
        except (OSError, docker_api.DockerError) as error:
            stayed_items.append({**_item_entry(item), "why": str(error)})
    if not stayed_items:
        for number in plan.dropped_numbers:
            (paths.generations / f"{number:04}.json").unlink(missing_ok=True)
    return {"removed": gone_items, "failed": stayed_items}


def _item_entry(item: unneeded_content.UnneededItem) -> dict[str, Any]:
    return {"kind": item.kind, "name": item.name, "bytes": item.bytes}


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Run the command line; see the module's docstring."""
    parser = program_command_lines.parser(__doc__)
    parser.add_argument("action", choices=("plan", "remove"))
    parser.add_argument("--keep", type=int, default=KEEP, metavar="N")
    parser.add_argument("--digest", default="")
    options = parser.parse_args(argv)
    if options.keep < 1:
        raise errors.Problem("--keep: at least 1, the present generation", errors.EXIT_USAGE)
    paths = paths or layout.Paths()
    docker = docker_api.Docker(paths.docker_socket, timeout=300)
    try:
        if options.action == "plan":
            refuse_while_busy(paths)
            plan = unneeded_content.plan_cleanup(paths, docker, options.keep)
            items = [_item_entry(item) for item in plan.items]
            document = {"items": items, "dropped": plan.dropped_numbers, "digest": plan.digest}
            print(json.dumps(document))
            return errors.EXIT_DONE
        # Locked, not just checked: a deploy that begins now may need content that is judged
        # unneeded.
        with (
            deploy_lock.keep_deploys_away("gc", paths),
            switch_lock.hold_lock(paths.switch_lock, "lockstep gc", "nothing else"),
        ):
            refuse_jobs(paths)
            answer = remove_unneeded(paths, docker, options.keep, options.digest)
            summary = f"removed {len(answer['removed'])}, could not remove {len(answer['failed'])}"
            audit_log.add_audit_line(os.environ.get("SUDO_USER", "root"), "gc", summary)
    except docker_api.DockerUnreachable as error:
        raise errors.Problem(str(error)) from error
    print(json.dumps(answer))
    return errors.EXIT_FAILED if answer["failed"] else errors.EXIT_DONE
