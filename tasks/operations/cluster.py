"""What the members of a cluster have in common: their key, and models that run on all of them.

The key is made on rank 0 and goes from host to host through this process' memory only: no command
line, no log and no file here ever holds it.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from gevent.event import Event
from gevent.lock import BoundedSemaphore
from pyinfra import host, state
from pyinfra.api import FunctionCommand, QuoteString, StringCommand, operation
from pyinfra.api.arguments import CONNECTOR_ARGUMENT_KEYS, pop_global_arguments
from pyinfra.connectors.util import CommandOutput
from pyinfra.context import ctx_host

from lockstep.files.managed_file import AGENT_UNIT, command
from lockstep.inventory.cluster import Group
from lockstep.units.agent_unit import key_path
from tasks import remote, run
from tasks.facts import host as facts

ROLLOUT = command("rollout")
FLOOR = command("floor")
# A return that was cut off is ended by systemd; it includes a start, which its own unit bounds.
JOB = (
    *("--property", "OOMScoreAdjust=-900", "--property", "TimeoutStopSec=7200"),
    *("--property", f"ExecStopPost={' '.join(ROLLOUT)} mend"),
)
#: Under which the members of this run's clusters keep what they had.
ROLLOUT_ID = secrets.token_hex(8)
_PROGRAM = command("make-secrets")
_SWITCH = command("switch")
Commands = Generator[StringCommand | FunctionCommand, None, None]


@operation()
def keys_made(groups: Sequence[Group]) -> Commands:
    """Make the key of each cluster whose rank 0 this host is, once, in a file of mode 0600.

    Args:
        groups: This host's part of its clusters.
    """
    missing = [group for group in groups if group.rank == 0 and not _hash(host.name, groups, group)]
    for group in missing:
        yield remote.words([*_PROGRAM, key_path(group.name)])
    if missing:
        yield from _agent_restarted()
    else:
        host.noop("no key is to be made here")


@operation()
def keys_carried(groups: Sequence[Group]) -> Commands:
    """Give this host the key of rank 0, where it is a member of a higher rank.

    Args:
        groups: This host's part of its clusters.
    """
    changed = False
    for group in groups:
        if group.rank == 0:
            continue
        mine = _hash(host.name, groups, group)
        first = _first(group)
        if first is None:
            if mine is None:
                yield from remote.refuse(
                    f"the key of cluster {group.name} is to come from {group.members[0].name}, "
                    "which is not part of this run. Remedy: deploy to all members of the cluster."
                )
            continue
        if mine is None or mine != _hash(first.name, groups, group):
            changed = True
            carried = Carried(*(QuoteString(word) for word in (*_PROGRAM, "--take", _path(group))))
            carried.first, carried.path = first, _path(group)
            yield carried
    if changed:
        yield from _agent_restarted()
    else:
        host.noop("the keys are those of rank 0")


def _agent_restarted() -> Commands:
    """An agent that runs must not go on with the key of before."""
    states = facts.ask("units") or {}
    if states.get(AGENT_UNIT, {}).get("ActiveState") == "active":
        yield remote.words(["systemctl", "restart", AGENT_UNIT])


def taken_down(units: Sequence[str]) -> Commands:
    """Take what runs as one of these units down on all members of its cluster.

    `brought_back` starts it when every member is done.

    Args:
        units: Ranks that run here with an older generation.
    """
    for target in run.current().plan.targets:
        if target.group is not None and target.unit in units:
            _owed.setdefault(target.group.name, Owed(target.name))
            host.log(f"{target.name} is taken down on all members of {target.group.name}")
            words = remote.job_words("cluster-down", [*_SWITCH, "none", "--wait"])
            down = Down(*(QuoteString(word) for word in words))
            down.cluster = target.group.name
            if target.data.floor and target.data.floor.share is not None:
                down.first = _first(target.group)
            yield down


def _first(group: Group) -> Any:
    """Rank 0 of a cluster; None where it is no part of this run."""
    first = state.inventory.get_host(group.members[0].name)
    return first if first in state.active_hosts else None


def is_owed(groups: Iterable[Group]) -> bool:
    """Whether a model of one of these clusters was taken down by this run."""
    return any(group.name in _owed for group in groups)


@operation()
def brought_back(groups: Sequence[Group]) -> Commands:
    """Start what `taken_down` stopped, now that every member is done; one does it for all.

    Where it does not serve, that one has all members return to what they had, and this fails on
    each of them.

    Args:
        groups: This host's part of its clusters.
    """
    owed = [group for group in groups if group.name in _owed]
    if not owed:
        host.noop("no model of the cluster was taken down")
    for group in owed:
        owing = _owed[group.name]
        words = [*ROLLOUT, "together", owing.target, ROLLOUT_ID, *_gate(group)]
        start = remote.job("cluster-up", words, *JOB)
        mine = _speaker(group) == host.name
        if not state.is_executing:
            yield from [start] if mine else []
        elif mine:
            with owing.settled():
                yield start
            _changed_on_all()
        elif owing.returned():
            yield from remote.refuse(
                f"{owing.target} does not serve with what was deployed; this host returned "
                f"with the other members of {group.name}"
            )


def _speaker(group: Group) -> str:
    """The first member of this run; rank 0 unless it is left out, or has failed."""
    here = {each.name for each in state.active_hosts}
    return next(member.name for member in group.members if member.name in here)


def _gate(group: Group) -> list[str]:
    """The floor of the target, where this host is the rank that answers."""
    targets = run.current().plan.targets
    floors = [target for target in targets if target.group == group and target.data.floor]
    return ["--gate", "--", *FLOOR] if floors and group.rank == 0 else []


class Owed:
    """A model that was hot before this run changed it, and how its start ends."""

    def __init__(self, target: str) -> None:
        self.target = target
        self._over = Event()
        self._failed = False

    @contextmanager
    def settled(self) -> Iterator[None]:
        """The start; one that leaves the block by an exception has failed."""
        try:
            yield
        except BaseException:
            self._failed = True
            raise
        finally:
            self._over.set()

    def returned(self) -> bool:
        """Whether it failed; waits for its end."""
        self._over.wait()
        return self._failed


# Cluster → what this run owes it.
_owed: dict[str, Owed] = {}


def _changed_on_all() -> None:
    """Other members do what one of them is told."""
    for each in state.inventory:
        facts.forget(each)


class Down(remote.Streamed):
    """Takes a group down on behalf of all its members: whoever comes first does it.

    Where there is a `first`, rank 0, it measures before that how fast the model was.
    """

    cluster: str = ""
    first: Any = None
    _alone = BoundedSemaphore()
    _done: ClassVar[set[str]] = set()

    def run(self, state: Any, host: Any, connector_arguments: Any) -> Any:
        """Do it, or wait for the member that does."""
        with self._alone:
            if self.cluster in self._done:
                return True, CommandOutput([])
            if self.first is not None:
                # Nothing is lost but the comparison where this fails, and the log says why.
                _run_on(self.first, [*FLOOR, "--baseline"])
            answer = super().run(state, host, connector_arguments)
            _changed_on_all()
            if answer[0]:
                self._done.add(self.cluster)
            return answer


class Carried(remote.Changing):
    """Writes what another host's file holds; nothing of it is shown."""

    first: Any = None
    path: str = ""

    def run(self, state: Any, host: Any, connector_arguments: Any) -> Any:
        """Read it there, write it here."""
        done, output = _run_on(self.first, ["cat", self.path], shown=False)
        if not done:
            return remote.failed(
                host, f"{self.first.name} has no {self.path} to give"
            ), CommandOutput([])
        connector_arguments["_stdin"] = [output.stdout + "\n"]
        return super().run(state, host, connector_arguments)


def _run_on(other: Any, argv: Sequence[str], shown: bool = True) -> tuple[bool, CommandOutput]:
    """Run words on another host of this run, as its own operations would; whether, and output."""
    with ctx_host.use(other):
        every, _ = pop_global_arguments(state, other, {})
        mine: Any = {key: every[key] for key in CONNECTOR_ARGUMENT_KEYS if key in every}
        done, output = other.run_shell_command(
            remote.words(argv), print_output=shown, print_input=shown, **mine
        )
    return done, output


def _path(group: Group) -> str:
    return key_path(group.name)


def _hash(name: str, groups: Sequence[Group], group: Group) -> str | None:
    """SHA-256 of the key on a host; None where it has none that only root can read."""
    found = facts.ask("files", state.inventory.get_host(name))
    have = found[_path(group)] if found else None
    if have is None or (have["mode"], have["owner"], have["group"]) != ("0600", "root", "root"):
        return None
    return str(have["sha256"])
