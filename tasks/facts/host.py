"""Facts about a host, each one command: a probe of lockstep/probes that prints JSON."""

from __future__ import annotations

import json
import shlex
from typing import Any

from pyinfra.api import FactBase, StringCommand
from pyinfra.api.exceptions import FactProcessError

from lockstep.files.managed_file import PROGRAMS, command
from tasks import remote


class Probe(FactBase[Any]):
    """JSON that a probe prints; None where it printed nothing."""

    abstract = True
    probe = ""

    def command(self, asked: dict[str, Any]) -> StringCommand:
        """Send the probe with its question."""
        return remote.probe(self.probe, asked)

    def process(self, output: list[str]) -> Any:
        """The JSON document; anything else fails this host only."""
        try:
            return json.loads("\n".join(output))
        except ValueError as fault:
            raise FactProcessError(f"{self.probe} did not print JSON: {fault}") from fault


class Preflight(Probe):
    """Hardware, driver, Docker, memory, disks, ports, reachability and clock."""

    probe = "preflight"


class Foreign(Probe):
    """What is in the way of the deploy and is somebody else's."""

    probe = "intruders"


class System(Probe):
    """Packages, accounts, groups, kernel settings, tools."""

    probe = "system"


class Files(Probe):
    """Text, mode and owner of files and folders."""

    probe = "files"


class Units(Probe):
    """State of systemd units, with what each running one was started with."""

    probe = "units"


class Marked(Probe):
    """Paths of files that an earlier deploy wrote."""

    probe = "marked"


class Firewall(Probe):
    """The rules that are in force, and those of the next boot."""

    probe = "firewall"


class Fabric(Probe):
    """Addresses and MTU of the fast link, and the file that sets them."""

    probe = "fabric"


class Engines(Probe):
    """The venv engine's environment and what each engine said about itself."""

    probe = "engines"


class Generation(Probe):
    """The newest record of what this host was brought to."""

    probe = "generations"


class Images(Probe):
    """Which pinned images are present."""

    probe = "images"


class Weights(FactBase[Any]):
    """State of every model that the host's weights.json names; {} before that file is there."""

    def command(self, spec: str) -> str:
        """Ask the program on the host, which reads no weight and no network."""
        program = command("weights-state", spec)
        return f"! test -e {PROGRAMS}/__main__.py || {shlex.join(program)}"

    @staticmethod
    def default() -> dict[str, Any]:
        """Nothing is known."""
        return {}

    def process(self, output: list[str]) -> Any:
        """The program's JSON."""
        try:
            return json.loads("\n".join(output))
        except ValueError as fault:
            raise FactProcessError(f"weights-state did not print JSON: {fault}") from fault
