"""Make the kernel send its messages to another host, and keep it doing so.

usage: netconsole send FROM TO PORT   from the address FROM of this host to UDP port PORT of TO
       netconsole end                 stop sending

Runs as root in lockstep-netconsole.service. The kernel forgets its target when the interface goes,
as on a Spark whose cable is pulled; each look sets it up again. Each look also finds the interface
that leads to TO and the hardware address of the next hop, because a dying kernel cannot.

exit codes: 1 the kernel refused `end`, 2 wrong use; `send` ends by a signal only
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from lockstep.onhost.core import errors, event_lines, layout, runner

#: Seconds between two looks.
LOOK_S = 15.0
NO_MODULE = (
    "this kernel has no netconsole: its messages stay on this host. Remedy: `modprobe netconsole` "
    "says why; monitoring.netconsole: False does without"
)
_ANY = "ff:ff:ff:ff:ff:ff"


def wanted_attributes(source: str, to: str, port: str) -> dict[str, str]:
    """Return a target's attributes and their values; addresses are those of the fast link.

    Raises:
        errors.Problem: The route to that host does not begin at `source`, as without a cable.
    """
    ways = _ip_command_entries("route", "get", to)
    if not ways or ways[0].get("prefsrc") != source:
        raise errors.Problem(f"there is no way from {source} to {to}. Remedy: look at the cable")
    device, hop = ways[0]["dev"], ways[0].get("gateway", to)
    entries = _ip_command_entries("neigh", "show", "to", hop, "dev", device)
    hardware_address = next((entry["lladdr"] for entry in entries if "lladdr" in entry), None)
    attributes = {"extended": "1", "dev_name": device, "local_ip": source}
    attributes |= {"remote_ip": to, "remote_port": port}
    return {**attributes, "remote_mac": hardware_address} if hardware_address else attributes


def _ip_command_entries(*words: str) -> list[dict[str, str]]:
    result = runner.run(["ip", "-json", *words])
    entries: list[dict[str, str]] = (
        json.loads(result.stdout or "[]") if result.returncode == 0 else []
    )
    return entries


class NetconsoleTarget:
    """Our netconsole target in the kernel; `folder` is another one only in unit tests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def sends_as_wanted(self, wanted_attributes: Mapping[str, str]) -> bool:
        """Tell whether it sends as wanted. An unknown hardware address makes no difference."""
        has = {"enabled": "1", **wanted_attributes}
        return self._folder.is_dir() and all(
            self._read_attribute(name) == has[name] for name in has
        )

    def set_up(self, wanted_attributes: Mapping[str, str]) -> None:
        """Configure and start it.

        Raises:
            errors.Problem: The kernel has no netconsole, or refuses.
            OSError: The kernel does not let the target be made.
        """
        if not self._folder.parent.is_dir():
            raise errors.Problem(NO_MODULE)
        self._folder.mkdir(exist_ok=True)
        # A target takes no change while it sends.
        self._disable_target()
        for name, value in {"remote_mac": _ANY, **wanted_attributes}.items():
            self._write_attribute(name, value)
        self._write_attribute("enabled", "1")

    def remove(self) -> None:
        """Remove it, if it is there. Raises as `set_up`."""
        if self._folder.is_dir():
            self._disable_target()
            self._folder.rmdir()

    def _disable_target(self) -> None:
        if self._read_attribute("enabled") == "1":
            self._write_attribute("enabled", "0")

    def _read_attribute(self, name: str) -> str:
        return (self._folder / name).read_text(encoding="ascii").strip()

    def _write_attribute(self, name: str, value: str) -> None:
        try:
            (self._folder / name).write_text(value, encoding="ascii")
        except OSError as fault:
            # The error comes from the write to the kernel, and its text names no file.
            why = f"the kernel does not take {name} {value}: {fault.strerror}"
            raise errors.Problem(why) from fault


def set_up_target_if_needed(paths: layout.Paths, where: tuple[str, str, str]) -> str:
    """Set the target up if it does not send as wanted; return the change or fault, else ""."""
    try:
        attributes, own_target = wanted_attributes(*where), NetconsoleTarget(paths.netconsole)
        if own_target.sends_as_wanted(attributes):
            return ""
        own_target.set_up(attributes)
    except (OSError, errors.Problem) as problem:
        return str(problem)
    return f"the kernel sends to {where[1]}, port {where[2]}, by {attributes['dev_name']}"


def main(
    argv: list[str], paths: layout.Paths | None = None, sleep: Callable[[float], None] = time.sleep
) -> int:
    """Run the command line; see the module's docstring."""
    paths = paths or layout.Paths()
    if argv == ["end"]:
        NetconsoleTarget(paths.netconsole).remove()
        return errors.EXIT_DONE
    if len(argv) != 4 or argv[0] != "send":
        print((__doc__ or "").strip(), file=sys.stderr)
        return errors.EXIT_USAGE
    last_message = ""
    while True:
        message = set_up_target_if_needed(paths, (argv[1], argv[2], argv[3]))
        if message and message != last_message:
            event_lines.say(f"lockstep netconsole: {message}")
        last_message = message or last_message
        sleep(LOOK_S)
