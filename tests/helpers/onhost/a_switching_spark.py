"""A host whose models the gateway may have switched: its switches are real, its systemd is not."""

from __future__ import annotations

import json
import os
import pwd
import socket
import subprocess
import threading
from pathlib import Path

import onhost_fake_systemd
from a_target import about
from fork import Fork
from onhost_fakes import FakeDocker, FakeEngine, FakeSystemd, host_root

from lockstep.onhost.core import errors
from lockstep.onhost.gateway import keys, switch_program
from lockstep.onhost.operator import switch_sh
from lockstep.onhost.switching import switch_job

UNITS = {"qwen": "qwen.service", "mistral": "mistral.service", "spare": "spare.service"}


class SwitchingSpark:
    """mistral is hot; qwen is off, and so is spare, the fallback of qwen.

    `socket` is what systemd does for lockstep-gateway-switch.socket.
    """

    def __init__(self, folder: Path, monkeypatch) -> None:
        self.engine = FakeEngine()
        where = {"url": self.engine.url, "engine_url": self.engine.url, "start_timeout_s": 60}
        self.targets = {name: about(unit=unit, **where) for name, unit in UNITS.items()}
        self.targets["qwen"]["fallback"] = "spare"
        self.paths = host_root(folder / "root", self.targets)
        self.systemd = FakeSystemd(folder / "systemd", monkeypatch)
        self.docker = FakeDocker(self.paths.docker_socket)
        for unit in UNITS.values():
            self.systemd.unit(unit)
            # Whose processes are alive is told by systemd alone here.
            group = self.paths.groups_of_units / unit
            group.mkdir(parents=True)
            (group / "cgroup.events").write_text("populated 1\n")
        self.systemd.unit(UNITS["mistral"], ActiveState="active", SubState="running")
        self.socket = folder / "switch.sock"
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(self.socket))
        self._listening.listen()
        #: What was started for each connection.
        self.started: list[subprocess.Popen[bytes]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection:
                process = Fork(self._program, stdin=connection, stdout=connection)
                self.started.append(process)

    def _program(self) -> int:
        """The program, with the worker that it has systemd start, of this root."""
        keys.ACCOUNT = pwd.getpwuid(os.getuid()).pw_name
        worker = ["switch.sh"]
        switch_job.program = lambda: worker
        onhost_fake_systemd.HERE[(*worker,)] = lambda words: errors.ended(
            "switch.sh", lambda: switch_sh.main(words, self.paths)
        )
        return errors.ended("gateway-switch", lambda: switch_program.main([], self.paths))

    def tell(self, name: str, **values: object) -> None:
        """Change a target's data."""
        data = json.loads(self.paths.targets.read_text())
        data["targets"][name].update(values)
        self.paths.targets.write_text(json.dumps(data))

    @property
    def hot(self) -> list[str]:
        states = {name: self.systemd.state(unit) for name, unit in UNITS.items()}
        return [name for name, state in states.items() if state["ActiveState"] == "active"]

    def close(self) -> None:
        # Wakes who waits in accept(); close() alone would not.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for process in self.started:
            process.wait(180)
        self.docker.close()
        self.engine.close()
