#!/usr/bin/python3
"""Give the fast link its addresses without losing the host.

usage: fabric.py try --seconds N   apply the netplan file on standard input; after N seconds what
                                   there was comes back
       fabric.py keep              a fresh login came through: it stays
       fabric.py back              what there was comes back now

exit codes: 0 done, 1 netplan refused it or it was taken back meanwhile, 2 wrong use
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstep.onhost import common
else:
    import common

_NAME = "40-cx7.yaml"
_BACK = "lockstep-fabric-back"
_APPLY_S = 60.0


class Fabric:
    """The link of one host; `paths` is another root only in unit tests."""

    def __init__(self, paths: common.Paths) -> None:
        self._file = paths.root / "etc/netplan" / _NAME
        self._before = paths.run / "fabric-before.json"

    def attempt(self, text: str, seconds: int) -> None:
        """Apply a file, with a timer that undoes it unless somebody keeps it."""
        _check(text)
        _disarm()
        # Of two attempts at once neither was confirmed: what was there before both comes back.
        if not self._before.exists():
            old = self._file.read_text(encoding="utf-8") if self._file.exists() else None
            _write(self._before, json.dumps({"text": old, "links": _links()}))
        argv = ["systemd-run", "--quiet", "--collect", f"--unit={_BACK}"]
        argv += [f"--on-active={seconds}", "--timer-property=AccuracySec=1"]
        try:
            # First: this connection may not live to see the next command.
            _must([*argv, "/usr/bin/python3", str(Path(__file__).resolve()), "back"])
            _write(self._file, text)
            _must(["netplan", "apply"])
        except common.Problem:
            _disarm()
            self._restore()
            raise

    def keep(self) -> None:
        """Let it stay. Problem when it was taken back meanwhile."""
        _disarm()
        if not self._before.exists():
            raise common.Problem(
                f"{self._file} was taken back: no new login came through in time. Remedy: look at "
                "fabric.interfaces in the inventory, and deploy again"
            )
        self._before.unlink()

    def back(self) -> None:
        """What there was before `attempt`; nothing where there was none."""
        if self._before.exists():
            self._restore()
            common.say(f"{self._file} was taken back: nobody confirmed it")
        # Last: this may be the timer's own service.
        _disarm()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """One program at a time: two deploys and the timer may come together."""
        self._before.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        with self._before.with_suffix(".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _restore(self) -> None:
        kept = json.loads(self._before.read_text(encoding="utf-8"))
        if kept["text"] is None:
            self._file.unlink(missing_ok=True)
        else:
            _write(self._file, kept["text"])
        # Whatever netplan makes of it, the addresses of before are what lets somebody in.
        common.run(["netplan", "apply"], _APPLY_S)
        for name, link in kept["links"].items():
            common.run(["ip", "link", "set", "dev", name, "mtu", str(link["mtu"])])
            for address in link["addresses"]:
                common.run(["ip", "address", "replace", address, "dev", name])
        for link in kept["links"].values():
            for route in link["routes"]:
                common.run(["ip", "route", "replace", *route])
        self._before.unlink()


def _links() -> dict[str, dict[str, Any]]:
    """Interface → MTU, addresses that other hosts reach, and its default routes."""
    found: dict[str, dict[str, Any]] = {}
    for link in json.loads(_must(["ip", "-json", "address", "show"]) or "[]"):
        if link["ifname"] == "lo":
            continue
        addresses = [
            f"{each['local']}/{each['prefixlen']}"
            for each in link.get("addr_info", [])
            if each.get("scope") == "global"
        ]
        found[link["ifname"]] = {"mtu": link["mtu"], "addresses": addresses, "routes": []}
    for route in json.loads(_must(["ip", "-json", "route", "show", "default"]) or "[]"):
        if route.get("dev") in found and route.get("gateway"):
            words = ["default", "via", route["gateway"], "dev", route["dev"]]
            found[route["dev"]]["routes"].append(
                words + (["metric", str(route["metric"])] if "metric" in route else [])
            )
    return found


def _check(text: str) -> None:
    """Problem where netplan does not take the file; nothing of the host is touched."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "etc/netplan" / _NAME
        path.parent.mkdir(parents=True)
        _write(path, text)
        _must(["netplan", "generate", "--root-dir", folder])


def _write(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        os.fchmod(handle, 0o600)
        out.write(text)
    new.replace(path)


def _disarm() -> None:
    common.run(["systemctl", "stop", f"{_BACK}.timer"])


def _must(argv: list[str]) -> str:
    done = common.run(argv, _APPLY_S)
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split())
        raise common.Problem(f"{' '.join(argv[:2])}: {said[-500:]}")
    return done.stdout


def main(argv: list[str], paths: common.Paths | None = None) -> int:
    """Command line; see the module's docstring."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = parser.add_subparsers(dest="action", required=True)
    attempt = actions.add_parser("try", help="apply it for some seconds")
    attempt.add_argument("--seconds", type=int, required=True, metavar="N")
    actions.add_parser("keep", help="let it stay")
    actions.add_parser("back", help="take it back")
    options = parser.parse_args(argv)
    fabric = Fabric(paths or common.Paths())
    text = sys.stdin.read() if options.action == "try" else ""
    with fabric.alone():
        if options.action == "try":
            fabric.attempt(text, options.seconds)
        else:
            getattr(fabric, options.action)()
    return common.EXIT_DONE


if __name__ == "__main__":
    sys.exit(common.ended("lockstep fabric", lambda: main(sys.argv[1:])))
