"""Plant drift on a lab host, a few kinds at a time: python drifting.py INVENTORY [NAME …].

A process of its own, because reading the lab's inventory moves the reader into the lab's network.
Prints JSON: {"before", "after": differences, "found": {plant: differences}}, each difference as
(kind, item, how). One program on the second host plants, takes snapshots and undoes; the snapshots
are taken by the very modules that `lockstep diff` sends.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from planted import PLANTS, REMEDY, Plant, rounds

from lockstep.drift import hosts, report
from lockstep.drift.compare import Difference
from lockstep.drift.subjects import KINDS
from lockstep.files import sent
from lockstep.files.sent import named

# Runs on the host as root: one order per line, one answer per line.
_SERVER = f"""\
import json, subprocess, sys
sent = json.loads(sys.stdin.readline())
{sent.IMPORTER}
for line in sys.stdin:
    order = json.loads(line)
    if isinstance(order, list):
        answer = program.take({{name: sent["asked"][name] for name in order}})
    else:
        done = subprocess.run(["bash", "-c", order], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        answer = [done.returncode, done.stdout[-500:]]
    print(json.dumps(answer), flush=True)
"""


class Planter:
    """The second host, where drift is planted, beside the first."""

    def __init__(self, path: Path) -> None:
        self.key = secrets.token_bytes(32)
        self.intended, self.asked = report.read(path, limit=("spark1", "spark2"), key=self.key)
        self.other = hosts.over_ssh(self.asked[0])
        argv = ["sudo", "-n", "/usr/bin/python3", "-I", "-c", _SERVER]
        self.server = subprocess.Popen(
            self.asked[1].login.command(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        #: What all readers said of the second host before anything was planted there.
        self.before: dict[str, Any] = {}
        self._send(json.loads(sent.questions(self.asked[1].questions)))

    def _send(self, order: object) -> None:
        assert self.server.stdin
        self.server.stdin.write(json.dumps(order) + "\n")
        self.server.stdin.flush()

    def _answer(self) -> Any:
        assert self.server.stdout
        return json.loads(self.server.stdout.readline())

    def shell(self, text: str) -> None:
        """Run shell text as root; it must succeed."""
        self._send(text)
        code, said = self._answer()
        assert code == 0, f"{text}: {code}\n{said}"

    def differences(self, reader: str | None = None) -> tuple[Difference, ...]:
        """What a diff of both hosts says now; what cannot be read is an error here.

        With a reader only that one reads again: the rest is as it was before anything was planted.
        """
        self._send([reader] if reader else list(self.asked[1].questions))
        found = self._answer()
        self.before = self.before or found
        if reader:
            old = {
                kind: facts
                for kind, facts in self.before["facts"].items()
                if kind not in KINDS or named(KINDS[kind].reader) != reader
            }
            found = {**self.before, "facts": {**old, **found["facts"]}, "faults": found["faults"]}
        now = hosts.Taken(self.asked[1].login.name, found)
        said = report.judge("lab", self.intended, [self.other, now], key=self.key)
        assert said.unknown == (), said.unknown
        return said.differences

    def planted(self, plants: Sequence[Plant]) -> tuple[Difference, ...]:
        """Differences with kinds of drift that one reader tells; they are gone afterwards."""
        for plant in plants:
            self.shell(plant.shell)
        found = self.differences(reader(plants[0].kind))
        if not all(about(plant, found) for plant in plants):
            # What is asked of it can depend on what another reader sees.
            found = self.differences()
        for plant in reversed(plants):
            undo = plant.undo
            if undo == REMEDY:
                same = about(plant, found)
                assert same, f"{plant}: only {short(found)}"
                undo = same[0].command
            self.shell(undo)
        return found


def reader(kind: str) -> str:
    """Name of the reader of a kind of fact."""
    return named(KINDS[kind].reader)


def about(plant: Plant, found: tuple[Difference, ...]) -> list[Difference]:
    """Those that name a plant."""
    return [each for each in found if each.kind == plant.kind and plant.item in each.item]


def short(found: tuple[Difference, ...]) -> list[tuple[str, str, str]]:
    """What the test compares."""
    return [(item.kind, item.item, item.how) for item in found]


def main(argv: list[str]) -> None:
    """Command line; see the module's docstring."""
    planter = Planter(Path(argv[0]))
    answer: dict[str, Any] = {"before": short(planter.differences()), "found": {}}
    for names in rounds(argv[1:] or PLANTS, reader):
        found = short(planter.planted([PLANTS[name] for name in names]))
        answer["found"] |= dict.fromkeys(names, found)
    answer["after"] = short(planter.differences())
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1:])
