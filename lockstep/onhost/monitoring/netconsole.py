"""Have the kernel send its messages to another host, and see to it that it goes on doing so.

usage: netconsole send FROM TO PORT   from the address FROM of this host to UDP port PORT of TO
       netconsole end                 no more

Runs as root in lockstep-netconsole.service. The kernel forgets its target when the interface goes,
as on a Spark whose cable is pulled; each look sets it up again. Which interface leads to TO, and to
which hardware address a packet goes, is asked at each look: the kernel cannot ask while it dies.

exit codes: 1 the kernel refused `end`, 2 wrong use; `send` ends by a signal only
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from lockstep.onhost.core import errors, layout, output, runner

#: Seconds between two looks.
LOOK_S = 15.0
NO_MODULE = (
    "this kernel has no netconsole: its messages stay on this host. Remedy: `modprobe netconsole` "
    "says why; monitoring.netconsole: False does without"
)
_ANY = "ff:ff:ff:ff:ff:ff"


def wanted(source: str, to: str, port: str) -> dict[str, str]:
    """Attribute of a target → value that it must have; addresses are those of the fast link.

    Problem: the way to that host does not begin at `source`, as without a cable.
    """
    ways = _ip("route", "get", to)
    if not ways or ways[0].get("prefsrc") != source:
        raise errors.Problem(f"there is no way from {source} to {to}. Remedy: look at the cable")
    device, hop = ways[0]["dev"], ways[0].get("gateway", to)
    neighbours = _ip("neigh", "show", "to", hop, "dev", device)
    known = next((each["lladdr"] for each in neighbours if "lladdr" in each), None)
    found = {"extended": "1", "dev_name": device, "local_ip": source}
    found |= {"remote_ip": to, "remote_port": port}
    return {**found, "remote_mac": known} if known else found


def _ip(*words: str) -> list[dict[str, str]]:
    done = runner.run(["ip", "-json", *words])
    found: list[dict[str, str]] = json.loads(done.stdout or "[]") if done.returncode == 0 else []
    return found


class Target:
    """Our target in the kernel; `folder` is another one only in unit tests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def sends(self, wanted: Mapping[str, str]) -> bool:
        """Whether it sends as wanted. A neighbour that is not known changes nothing."""
        has = {"enabled": "1", **wanted}
        return self._folder.is_dir() and all(self._get(name) == has[name] for name in has)

    def set_up(self, wanted: Mapping[str, str]) -> None:
        """Make it send as wanted.

        Problem: the kernel has no netconsole, or refuses. OSError: it does not let the target be.
        """
        if not self._folder.parent.is_dir():
            raise errors.Problem(NO_MODULE)
        self._folder.mkdir(exist_ok=True)
        # While it sends, it takes no change.
        self._stop()
        for name, value in {"remote_mac": _ANY, **wanted}.items():
            self._put(name, value)
        self._put("enabled", "1")

    def remove(self) -> None:
        """Take it away, if it is there. Raises as `set_up`."""
        if self._folder.is_dir():
            self._stop()
            self._folder.rmdir()

    def _stop(self) -> None:
        if self._get("enabled") == "1":
            self._put("enabled", "0")

    def _get(self, name: str) -> str:
        return (self._folder / name).read_text(encoding="ascii").strip()

    def _put(self, name: str, value: str) -> None:
        try:
            (self._folder / name).write_text(value, encoding="ascii")
        except OSError as fault:
            # Written at the end: it names no file.
            why = f"the kernel does not take {name} {value}: {fault.strerror}"
            raise errors.Problem(why) from fault


def look(paths: layout.Paths, where: tuple[str, str, str]) -> str:
    """Set the target up where it does not send as wanted; what was done or is wrong, "" else."""
    try:
        asked, ours = wanted(*where), Target(paths.netconsole)
        if ours.sends(asked):
            return ""
        ours.set_up(asked)
    except (OSError, errors.Problem) as problem:
        return str(problem)
    return f"the kernel sends to {where[1]}, port {where[2]}, by {asked['dev_name']}"


def main(
    argv: list[str], paths: layout.Paths | None = None, sleep: Callable[[float], None] = time.sleep
) -> int:
    """Command line; see the module's docstring."""
    paths = paths or layout.Paths()
    if argv == ["end"]:
        Target(paths.netconsole).remove()
        return errors.EXIT_DONE
    if len(argv) != 4 or argv[0] != "send":
        print((__doc__ or "").strip(), file=sys.stderr)
        return errors.EXIT_USAGE
    told = ""
    while True:
        said = look(paths, (argv[1], argv[2], argv[3]))
        if said and said != told:
            output.say(f"lockstep netconsole: {said}")
        told = said or told
        sleep(LOOK_S)
