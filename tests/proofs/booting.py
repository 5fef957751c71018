"""The power of a lab's host, and stand-in engines that stay quick over its boots."""

import json

import faults
from stack import Host, Stack

from lab import control
from lab.core.errors import LabError
from lab.core.state import open_lab

RECORD = "/var/lib/lockstep-deploy/boots.json"


class Booting:
    """Cuts the power of one host of a lab, and gives it back."""

    def __init__(self, stack: Stack, host: Host) -> None:
        self._host = host
        self._lab = open_lab(stack.name)

    def knobs(self, **more: object) -> None:
        """Let stand-in engines load quickly, with more knobs turned, now and after each boot."""
        text = json.dumps({**faults.QUICK, "load_seconds": 1.0, **more})
        files = [f"{faults.KNOBS}/standin-{engine}.json" for engine in faults.ENGINES]
        lines = "".join(f"f+ {file} 0644 - - - {text}\n" for file in files)
        self._host.root(
            f"cat > /etc/tmpfiles.d/standin.conf <<'END'\n{lines}END\n"
            "systemd-tmpfiles --create /etc/tmpfiles.d/standin.conf"
        )

    def take_power(self) -> None:
        """Cut the power."""
        control.ask(self._lab, "cycle", host=self._host.name, off=True, on=False)

    def off(self) -> bool:
        """Tell whether the host has no power."""
        return self._power() == "off"

    def _power(self) -> str:
        hosts = control.ask(self._lab, "status")["hosts"]
        return next(str(host["power"]) for host in hosts if host["name"] == self._host.name)

    def give_power(self) -> None:
        """Give the host power; an engine may cut it again."""
        try:
            control.ask(self._lab, "cycle", host=self._host.name, off=False, on=True)
        except LabError:
            # Cut again before anybody could log in.
            if not self.off():
                raise

    def is_settled(self) -> bool:
        """Tell whether the boot is over, with no job of it left."""
        # The login waits a while, for each costs more than the wait.
        answer = self._host.run(
            "timeout 3 systemctl is-system-running --wait >/dev/null; "
            "systemctl show -p SubState --value lockstep-boot.service; systemctl is-system-running"
        )
        words = answer.out.split()
        return len(words) == 2 and words[0] != "running" and words[1] in ("running", "degraded")
