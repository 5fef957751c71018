"""Plant drift on a lab host, one kind at a time: python drifting.py INVENTORY [NAME …].

A process of its own, because reading the lab's inventory moves the reader into the lab's network.
Prints JSON: {"before", "after": differences, "found": {plant: differences}}, each difference as
(kind, item, how). One program on the second host plants, takes snapshots and undoes; the snapshots
are taken by the very modules that `lockstep diff` sends.
"""

import json
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

from planted_drifts import PLANTS, REMEDY, Plant

from lockstep.drift import hosts, report
from lockstep.drift.compare import Difference
from lockstep.drift.subjects import KINDS
from lockstep.files import remote_exec
from lockstep.files.remote_exec import reader_name

# Runs on the host as root: one order per line, one answer per line.
_SERVER = f"""\
import json, subprocess, sys
sent = json.loads(sys.stdin.readline())
{remote_exec.IMPORTER}
for line in sys.stdin:
    order = json.loads(line)
    if isinstance(order, list):
        answer = program.answer_request({{name: sent["asked"][name] for name in order}})
    else:
        done = subprocess.run(["bash", "-c", order], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        answer = [done.returncode, done.stdout[-500:]]
    print(json.dumps(answer), flush=True)
"""


class Planter:
    """The second host, where drift is planted, with the first one for comparison."""

    def __init__(self, path: Path) -> None:
        self.key = secrets.token_bytes(32)
        self.intended_states, self.requests = report.read(
            path, limit=("spark1", "spark2"), key=self.key
        )
        self.other_reading = hosts.over_ssh(self.requests[0])
        argv = ["sudo", "-n", "/usr/bin/python3", "-I", "-c", _SERVER]
        self.server = subprocess.Popen(
            self.requests[1].login.command(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        #: What all readers said of the second host before anything was planted there.
        self.clean_answer: dict[str, Any] = {}
        questions = json.loads(remote_exec.readers_input(self.requests[1].questions))
        self.server.stdin.write(json.dumps(questions) + "\n")

    def _ask(self, order: object) -> Any:
        self.server.stdin.write(json.dumps(order) + "\n")
        self.server.stdin.flush()
        return json.loads(self.server.stdout.readline())

    def shell(self, text: str) -> None:
        """Run shell text as root; it must succeed."""
        code, output = self._ask(text)
        assert code == 0, f"{text}: {code}\n{output}"

    def differences(self, reader: str | None = None) -> tuple[Difference, ...]:
        """The differences that a diff of both hosts finds now; an unreadable fact is an error here.

        With a reader, only that one reads again: the rest is as it was before anything was planted.
        """
        answer = self._ask([reader] if reader else list(self.requests[1].questions))
        self.clean_answer = self.clean_answer or answer
        if reader:
            old = {
                kind: facts
                for kind, facts in self.clean_answer["facts"].items()
                if kind not in KINDS or reader_name(KINDS[kind].reader) != reader
            }
            answer = {
                **self.clean_answer,
                "facts": {**old, **answer["facts"]},
                "faults": answer["faults"],
            }
        now = hosts.HostSnapshot(self.requests[1].login.name, answer)
        drift_report = report.judge(
            "lab", self.intended_states, [self.other_reading, now], key=self.key
        )
        assert drift_report.unknown == (), drift_report.unknown
        return drift_report.differences

    def planted_differences(self, plant: Plant) -> tuple[Difference, ...]:
        """Plant a kind of drift, undo it, and return the differences meanwhile."""
        self.shell(plant.shell)
        differences = self.differences(reader_name(KINDS[plant.kind].reader))
        if not about(plant, differences):
            # What is asked of its reader can depend on what another one sees.
            differences = self.differences()
        undo = plant.undo
        if undo == REMEDY:
            matches = about(plant, differences)
            assert matches, f"{plant}: only {short(differences)}"
            undo = matches[0].command
        self.shell(undo)
        return differences


def about(plant: Plant, differences: tuple[Difference, ...]) -> list[Difference]:
    """The differences that name a plant."""
    return [
        difference
        for difference in differences
        if difference.kind == plant.kind and plant.item in difference.item
    ]


def short(differences: tuple[Difference, ...]) -> list[tuple[str, str, str]]:
    """The part of a difference that the test compares."""
    return [(item.kind, item.item, item.how) for item in differences]


def main(argv: list[str]) -> None:
    """Command line; see the module's docstring."""
    planter = Planter(Path(argv[0]))
    answer: dict[str, Any] = {"before": short(planter.differences()), "found": {}}
    for name in argv[1:] or PLANTS:
        answer["found"][name] = short(planter.planted_differences(PLANTS[name]))
    answer["after"] = short(planter.differences())
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1:])
