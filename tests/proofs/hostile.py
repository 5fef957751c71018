"""Hostile accounts, cut switches and a hung Docker, one row for each.

    python tests/proofs/hostile.py --record FILE [--only NAME …] [--lab NAME]

The rows are in hostile_rows.py. Each makes its fault on a host of a lab, clears it away and
says what happened. After each the same rules are judged: two engines never lived, nobody has more
rights than before, no command waited beyond its bound. A call with --only does the named rows once
more. The table at the end has the last verdict of each row; the exit code is 1 where one is broken.
"""

import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import runner
from faults import clear_knobs, set_knobs
from hostile_rows import BOUND_S, ROWS, Row
from soaking import Watcher
from stack import INVENTORY, SWITCH, Answer, Host, Stack

#: Exit code of `timeout`.
_TOO_LONG = 124
#: What nobody may change: root's own places, groups, rules of sudo, programs that run as root.
_RIGHTS = (
    "ls /root /run/root-was-here 2>/dev/null; getent group docker lockstep-operators sudo; "
    "cat /etc/sudoers /etc/sudoers.d/* /etc/passwd | sha256sum; "
    "find /usr/bin /usr/sbin /usr/local/bin /tmp /var/tmp /home /run /var/lib/lockstep -xdev "
    "-perm /6000 -type f; "
    "find /usr/local/lib/lockstep /data/scripts /etc/systemd ! -user root"
)
#: A row's own leftovers are its own matter; these are what any row may leave when it fails.
_CLEAR = (
    "systemctl stop 'hostile-*' 2>/dev/null; systemctl reset-failed 'hostile-*' 2>/dev/null; "
    "pkill -CONT -x dockerd; pkill -CONT -x containerd; pkill -CONT -x systemd-journal; "
    "pkill -CONT -x containerd-shim; "
    "systemctl unmask --runtime docker.service docker.socket 2>/dev/null; "
    "test -e /run/docker.sock.away && mv /run/docker.sock.away /run/docker.sock; "
    "for place in $(findmnt -rn -o TARGET -S hostile); do umount -l $place; done; "
    f"{set_knobs(None, 'none')}; systemctl start docker systemd-journald; "
    "systemctl is-active -q lockstep-gateway || { systemctl reset-failed lockstep-gateway; "
    "systemctl start lockstep-gateway; }; "
    "timeout 240 sh -c 'while systemctl show -p SubState lockstep-switch | grep -q running; "
    "do sleep 0.2; done'; true"
)


@dataclass
class Outcome(runner.Run):
    """The outcome of a row. `verdict`: kept or broken."""

    name: str = ""
    expectation: str = ""
    observation: str = ""
    verdict: str = "kept"

    @property
    def key(self) -> object:
        """A row's name."""
        return self.name


class Site:
    """A host of a deployed lab, with its actors.

    eve is an account without rights, olga only an operator.
    """

    def __init__(self, stack: Stack, host: Host) -> None:
        self.stack, self.host = stack, host
        #: Sentences about two engines at a time.
        self.sightings: list[str] = []
        self.known_rights = ""

    def prepare(self) -> None:
        """Make the accounts."""
        self.host.root(
            "for name in eve olga; do id -u $name >/dev/null 2>&1 || useradd -m -s /bin/sh $name; "
            "done; usermod -aG lockstep-operators olga"
        )
        self.known_rights = self.rights()

    def leave(self) -> None:
        """Remove the accounts; the host is as it was."""
        self.clear()
        clear_knobs(self.host)
        self.host.root("for name in eve olga; do pkill -9 -u $name; userdel -rf $name; done; true")

    def clear(self) -> None:
        """Remove the leftovers of a row, and wait until no switch is under way."""
        self.stack.mend()
        self.host.root(_CLEAR)

    # Who acts.

    def run(self, command: str, by: str = "spark", limit_s: float = BOUND_S) -> Answer:
        """Run shell text as an account; it must end within its bound."""
        bounded_command = f"timeout -k 5 {limit_s:.0f} sh -c {shlex.quote(command)}"
        if by != "spark":
            bounded_command = f"cd /tmp && sudo -n -u {by} {bounded_command}"
        answer = self.host.run(bounded_command, limit_s + 60)
        assert answer.code != _TOO_LONG, f"no end within {limit_s:.0f} s: {command}: {answer.text}"
        return answer

    def switch(self, word: str, limit_s: float = BOUND_S) -> Answer:
        """Run `switch.sh WORD`; it must end within its bound."""
        return self.run(f"{SWITCH} {word}", limit_s=limit_s)

    def drift(self) -> Answer:
        """Run `lockstep diff` for this host, without olga, whom the inventory does not name."""
        self.host.root("gpasswd --delete olga lockstep-operators")
        try:
            return self.stack.lockstep("diff", "--limit", self.host.name)
        finally:
            self.host.root("usermod -aG lockstep-operators olga")

    # What is on the host.

    @property
    def hot(self) -> str | None:
        """The hot model."""
        return self.host.status()["hot"]

    @property
    def cold(self) -> str:
        """A model that is not hot."""
        return "mistral" if self.hot == "qwen" else "qwen"

    def be_hot(self, model: str) -> None:
        """Switch to a model unless it is hot."""
        if self.hot != model:
            answer = self.switch(model)
            assert answer.code == 0, answer.text

    def rights(self) -> str:
        """The state that no actor of a row may change."""
        return self.host.root(_RIGHTS)


def judge_row(site: Site, row: Row, outcome: Outcome) -> None:
    """Do a row and judge it."""
    earlier_rights, sighting_count = site.known_rights, len(site.sightings)
    errors = AssertionError, subprocess.SubprocessError
    try:
        outcome.observation = row.do(site, *row.words)
        site.clear()
    except errors as error:
        outcome.violations.append(f"{type(error).__name__}: {error}")
        try:
            site.clear()
        except errors as clear_error:
            outcome.violations.append(f"not cleared: {clear_error}")
    outcome.violations += site.sightings[sighting_count:]
    site.known_rights = site.rights()
    if changed_rights := set(site.known_rights.splitlines()) ^ set(earlier_rights.splitlines()):
        outcome.violations.append(f"rights changed: {sorted(changed_rights)[:6]}")
    if outcome.violations:
        outcome.verdict = "broken"
        outcome.observation = "; ".join([*outcome.violations, outcome.observation])


def table(trial: runner.Trial[Outcome]) -> Iterator[str]:
    """The last outcome of each row, in the order of the rows."""
    last = {outcome.name: outcome for outcome in trial.runs}
    yield "| row | expected | what happened | verdict |"
    yield "|---|---|---|---|"
    for outcome in (last[row.name] for row in ROWS if row.name in last):
        observation = _cell(outcome.observation)
        yield f"| {outcome.name} | {outcome.expectation} | {observation} | {outcome.verdict} |"
    yield runner.counts("rows", (outcome.verdict for outcome in last.values()))


def _cell(text: str) -> str:
    line = " ".join(text.split()).replace("|", "\\|")
    return line if len(line) < 320 else f"{line[:317]}..."


def named_rows(names: list[str]) -> list[Row]:
    """The rows of these names; all rows without one."""
    row_names = {row.name for row in ROWS}
    if unknown := sorted(set(names) - row_names):
        raise SystemExit(f"no row {', '.join(unknown)}; there are {', '.join(sorted(row_names))}")
    return [row for row in ROWS if row.name in names or not names]


def prove(trial: runner.Trial[Outcome]) -> None:
    """Do the rows that have no outcome, or the named ones."""
    options = trial.options
    rows = {row.name: row for row in named_rows(options.only)}
    planned_outcomes = [
        Outcome(number, options.host, name=row.name, expectation=row.expectation)
        for number, row in enumerate(rows.values())
    ]
    site = Site(trial.stack, Host(trial.stack.name, options.host))
    site.clear()
    site.prepare()
    with Watcher(site.host, site.sightings):
        for outcome in trial.remaining(planned_outcomes, again=bool(options.only)):
            trial.make(outcome, partial(judge_row, site, rows[outcome.name]))
    site.leave()


PROOF = runner.Proof(
    __doc__,
    "hostile",
    Outcome,
    prove,
    table,
    {
        "only": {"action": "append", "default": [], "metavar": "NAME"},
        "host": {"default": "spark1", "help": "of the lab; spark1"},
    },
    lambda stack: INVENTORY,
)

if __name__ == "__main__":
    sys.exit(PROOF.main())
