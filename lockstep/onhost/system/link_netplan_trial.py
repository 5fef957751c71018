"""Give the fast link its addresses without losing the host.

usage: fabric try --seconds N [--adopt]
                                   apply the netplan file on standard input; after N seconds the
                                   previous state comes back. A file that Lockstep did not write is
                                   replaced only with --adopt
       fabric keep              a fresh login came through: the new file stays
       fabric back              the previous state comes back now

exit codes: 0 done, 1 netplan refused it or it was reverted meanwhile, 2 wrong use
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from lockstep.onhost.core import atomic_files, errors, layout, runner
from lockstep.onhost.records import ownership
from lockstep.onhost.system import confirm_or_revert

_NAME = "40-cx7.yaml"
_APPLY_S = 60.0


class LinkNetplanTrial(confirm_or_revert.Trial):
    """The link of one host; `paths` is another root only in unit tests.

    On trial the file lies in /run, where it hides the one of the same name in /etc (netplan(5)). So
    a reboot takes it back, too.
    """

    def __init__(self, paths: layout.Paths) -> None:
        self._root = paths.root
        self._file = paths.root / "etc/netplan" / _NAME
        self._file_on_trial = paths.root / "run/netplan" / _NAME
        target_path = paths.run / "fabric-before.json"
        message = f"{self._file} was taken back: nobody confirmed it"
        super().__init__("fabric", target_path, target_path.with_suffix(".lock"), message)

    def apply_on_trial(self, text: str, seconds: int, adopt: bool = False) -> None:
        """Apply a file, with a timer that undoes it unless somebody keeps it."""
        path = f"/etc/netplan/{_NAME}"
        judge = ownership.Ownership([path] if adopt else [], self._root)
        if owner := judge.foreign_owner_of_file(path):
            raise errors.Problem(
                f"{path} was not made by Lockstep ({owner}); nothing was changed. Remedy: set "
                f'fabric.netplan to False, or take it over: "adopt": ("{path}",)'
            )
        _check_netplan_file(text)
        judge.copy_before_adoption(path)
        self.apply_with_revert_timer(seconds, lambda: self._apply_netplan(text))

    def keep_change(self) -> None:
        """Keep the change; raise Problem if it was reverted meanwhile."""
        self.stop_revert_timer()
        if not self._file_on_trial.exists():
            raise errors.Problem(
                f"{self._file} was taken back: no new login came through in time. Remedy: look at "
                "fabric.interfaces in the inventory, and deploy again"
            )
        atomic_files.write(self._file, self._file_on_trial.read_text(encoding="utf-8"), mode=0o600)
        self._file_on_trial.unlink()
        self.backup.unlink(missing_ok=True)

    def store_state(self) -> None:
        """Store the addresses and routes by which this host is reached."""
        atomic_files.write_json(self.backup, _addresses_and_routes(), mode=0o600)

    def _apply_netplan(self, text: str) -> None:
        atomic_files.write(self._file_on_trial, text, mode=0o600)
        runner.run_or_raise("netplan", "apply")

    def restore_state(self) -> None:
        """Remove the file on trial, and restore every earlier address and route."""
        links = json.loads(self.backup.read_text(encoding="utf-8"))
        self._file_on_trial.unlink(missing_ok=True)
        # The earlier addresses let people in, even if netplan fails.
        runner.run(["netplan", "apply"], _APPLY_S)
        for name, link in links.items():
            runner.run(["ip", "link", "set", "dev", name, "mtu", str(link["mtu"])])
            for address in link["addresses"]:
                runner.run(["ip", "address", "replace", address, "dev", name])
        for link in links.values():
            for route in link["routes"]:
                runner.run(["ip", "route", "replace", *route])
        self.backup.unlink()


def _addresses_and_routes() -> dict[str, dict[str, Any]]:
    """Return MTU, addresses that other hosts reach, and default routes by interface."""
    links_by_name: dict[str, dict[str, Any]] = {}
    for link in json.loads(runner.run_or_raise("ip", "-json", "address", "show") or "[]"):
        if link["ifname"] == "lo":
            continue
        addresses = [
            f"{address['local']}/{address['prefixlen']}"
            for address in link.get("addr_info", [])
            if address.get("scope") == "global"
        ]
        links_by_name[link["ifname"]] = {"mtu": link["mtu"], "addresses": addresses, "routes": []}
    for route in json.loads(runner.run_or_raise("ip", "-json", "route", "show", "default") or "[]"):
        if route.get("dev") in links_by_name and route.get("gateway"):
            words = ["default", "via", route["gateway"], "dev", route["dev"]]
            links_by_name[route["dev"]]["routes"].append(
                words + (["metric", str(route["metric"])] if "metric" in route else [])
            )
    return links_by_name


def _check_netplan_file(text: str) -> None:
    """Raise Problem if netplan does not accept the file; nothing of the host is touched."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "etc/netplan" / _NAME
        atomic_files.write(path, text, mode=0o600)
        runner.run_or_raise("netplan", "generate", "--root-dir", folder)


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Run the command line; see the module's docstring."""
    actions = {"try": "apply it for some seconds", "keep": "let it stay", "back": "take it back"}
    options = confirm_or_revert.parse_trial_options(__doc__, argv, actions)
    fabric = LinkNetplanTrial(paths or layout.Paths())
    text = sys.stdin.read() if options.action == "try" else ""
    with fabric.hold_trial_lock():
        if options.action == "try":
            fabric.apply_on_trial(text, options.seconds, options.adopt)
        else:
            {"keep": fabric.keep_change, "back": fabric.revert_change}[options.action]()
    return errors.EXIT_DONE
