"""Give the fast link its addresses without losing the host.

usage: fabric try --seconds N [--adopt]
                                   apply the netplan file on standard input; after N seconds what
                                   there was comes back. A file that Lockstep did not write is
                                   replaced only with --adopt
       fabric keep              a fresh login came through: it stays
       fabric back              what there was comes back now

exit codes: 0 done, 1 netplan refused it or it was taken back meanwhile, 2 wrong use
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from lockstep.onhost.core import atomic, errors, layout, runner
from lockstep.onhost.records import ours
from lockstep.onhost.system import trial

_NAME = "40-cx7.yaml"
_APPLY_S = 60.0


class Fabric(trial.Trial):
    """The link of one host; `paths` is another root only in unit tests."""

    def __init__(self, paths: layout.Paths) -> None:
        self._root = paths.root
        self._file = paths.root / "etc/netplan" / _NAME
        before = paths.run / "fabric-before.json"
        said = f"{self._file} was taken back: nobody confirmed it"
        super().__init__("fabric", before, before.with_suffix(".lock"), said)

    def attempt(self, text: str, seconds: int, adopt: bool = False) -> None:
        """Apply a file, with a timer that undoes it unless somebody keeps it."""
        path = f"/etc/netplan/{_NAME}"
        judge = ours.Ours([path] if adopt else [], self._root)
        if whose := judge.file(path):
            raise errors.Problem(
                f"{path} was not made by Lockstep ({whose}); nothing was changed. Remedy: set "
                f'fabric.netplan to False, or take it over: "adopt": ("{path}",)'
            )
        _check(text)
        judge.keep_adopted(path)
        self.try_out(seconds, lambda: self._apply(text))

    def keep(self) -> None:
        """Let it stay. Problem when it was taken back meanwhile."""
        self.disarm()
        if not self.before.exists():
            raise errors.Problem(
                f"{self._file} was taken back: no new login came through in time. Remedy: look at "
                "fabric.interfaces in the inventory, and deploy again"
            )
        self.before.unlink()

    def remember(self) -> None:
        """The file, and how this host is reached."""
        old = self._file.read_text(encoding="utf-8") if self._file.exists() else None
        atomic.write_json(self.before, {"text": old, "links": _links()}, mode=0o600)

    def _apply(self, text: str) -> None:
        atomic.write(self._file, text, mode=0o600)
        runner.must("netplan", "apply")

    def restore(self) -> None:
        """The file, and every address and route of before."""
        kept = json.loads(self.before.read_text(encoding="utf-8"))
        if kept["text"] is None:
            self._file.unlink(missing_ok=True)
        else:
            atomic.write(self._file, kept["text"], mode=0o600)
        # Whatever netplan makes of it, the addresses of before are what lets somebody in.
        runner.run(["netplan", "apply"], _APPLY_S)
        for name, link in kept["links"].items():
            runner.run(["ip", "link", "set", "dev", name, "mtu", str(link["mtu"])])
            for address in link["addresses"]:
                runner.run(["ip", "address", "replace", address, "dev", name])
        for link in kept["links"].values():
            for route in link["routes"]:
                runner.run(["ip", "route", "replace", *route])
        self.before.unlink()


def _links() -> dict[str, dict[str, Any]]:
    """Interface → MTU, addresses that other hosts reach, and its default routes."""
    found: dict[str, dict[str, Any]] = {}
    for link in json.loads(runner.must("ip", "-json", "address", "show") or "[]"):
        if link["ifname"] == "lo":
            continue
        addresses = [
            f"{each['local']}/{each['prefixlen']}"
            for each in link.get("addr_info", [])
            if each.get("scope") == "global"
        ]
        found[link["ifname"]] = {"mtu": link["mtu"], "addresses": addresses, "routes": []}
    for route in json.loads(runner.must("ip", "-json", "route", "show", "default") or "[]"):
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
        atomic.write(path, text, mode=0o600)
        runner.must("netplan", "generate", "--root-dir", folder)


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Command line; see the module's docstring."""
    actions = {"try": "apply it for some seconds", "keep": "let it stay", "back": "take it back"}
    options = trial.options(__doc__, argv, actions)
    fabric = Fabric(paths or layout.Paths())
    text = sys.stdin.read() if options.action == "try" else ""
    with fabric.alone():
        if options.action == "try":
            fabric.attempt(text, options.seconds, options.adopt)
        else:
            getattr(fabric, options.action)()
    return errors.EXIT_DONE
