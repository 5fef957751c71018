"""How the last run of each cluster stands, as this member knows it: for the watch and `status`.

In /run, and on disk what a boot must not forget: why a group ended. Whether a rank is up is always
asked of systemd. Only the agent writes it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Container, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstep.onhost import common, generations
else:
    import common
    import generations

HOT, ENDED, RECOVERING, DOWN, STOPPED = "hot", "ended", "recovering", "down", "stopped"
WORDS = {
    HOT: "hot",
    ENDED: "ended, rank 0 decides what follows",
    RECOVERING: "ended, to be started again",
    DOWN: "left down",
    STOPPED: "switched off",
}
_writing = threading.Lock()


@dataclass(frozen=True)
class Group:
    """One run of a cluster's target.

    Attributes:
        cluster: Name of the cluster.
        target: What it runs.
        run: Tells this run apart from others.
        state: `hot`; `ended` by a fault; `recovering` (rank 0 starts it again); `down`, given up;
            `stopped` by somebody.
        since: When it became hot, Unix time.
        reason: Why it ended, or ended last.
        ended: When that was, Unix time.
        ended_at: The same in seconds since boot.
        starts: When it was started again after a fault, seconds since boot.
        heard: When rank 0 was last heard, Unix time; on rank 0 its last token.
        members: Member → what it said last; on rank 0.
    """

    cluster: str
    target: str
    run: str
    state: str = HOT
    since: float = field(default_factory=time.time)
    reason: str = ""
    ended: float | None = None
    ended_at: float = 0.0
    starts: tuple[float, ...] = ()
    heard: float | None = None
    members: dict[str, str] = field(default_factory=dict)

    def over(self, state: str, reason: str) -> Group:
        """The same run, which is over now."""
        return replace(
            self, state=state, reason=reason, ended=time.time(), ended_at=time.monotonic()
        )


def load(paths: common.Paths) -> dict[str, Group]:
    """Cluster → group; {} where nothing is known."""
    return _load(paths.groups)


def _load(path: Path) -> dict[str, Group]:
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
        return {
            name: Group(**{**group, "starts": tuple(group["starts"])})
            for name, group in data.items()
        }
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        return {}


def save(paths: common.Paths, group: Group) -> None:
    """Keep one group's state, in one step; everybody may read it."""
    with _writing:
        groups = {**load(paths), group.cluster: group}
        # First on disk: what anybody can see, a boot remembers.
        _keep(paths, groups)
        _replace(paths, groups)


def remember(paths: common.Paths, host: str) -> None:
    """After a boot of `host`: what ran then is over, and what ended stays down with its reason."""
    if paths.groups.exists():
        return
    with _writing:
        for group in _load(paths.groups_kept).values():
            booted = f"{host} was rebooted or lost its power"
            # Starts are counted in seconds since a boot that is past.
            old = replace(group, starts=(), members={})
            if group.state == HOT:
                old = old.over(DOWN, booted)
            elif group.state in (ENDED, RECOVERING):
                old = replace(old, state=DOWN, reason=f"{group.reason}; then {booted}")
            _write(paths, old)


def forget_others(paths: common.Paths, clusters: Container[str]) -> None:
    """Keep nothing of a cluster that this host is a member of no more."""
    with _writing:
        groups = load(paths)
        known = {name: group for name, group in groups.items() if name in clusters}
        if known != groups:
            _keep(paths, known)
            _replace(paths, known)


def note(paths: common.Paths, group: Group, **values: Any) -> None:
    """Change fields of a run that still is in this state; one that is not stays as it is."""
    with _writing:
        current = load(paths).get(group.cluster)
        if current is not None and (current.run, current.state) == (group.run, group.state):
            _write(paths, replace(current, **values))


def _write(paths: common.Paths, group: Group) -> None:
    _replace(paths, {**load(paths), group.cluster: group})


def _keep(paths: common.Paths, groups: Mapping[str, Group]) -> None:
    try:
        generations.write(paths.groups_kept, {name: asdict(each) for name, each in groups.items()})
    except OSError as error:
        common.say(f"{paths.groups_kept}: {error.strerror}: a boot will forget how it stands")


def _replace(paths: common.Paths, groups: Mapping[str, Group]) -> None:
    paths.groups.parent.mkdir(parents=True, exist_ok=True)
    new = paths.groups.with_suffix(".new")
    new.write_text(json.dumps({name: asdict(each) for name, each in groups.items()}))
    new.chmod(0o644)
    new.replace(paths.groups)
