"""A host on which the gateway may switch: its switches are real, its systemd is made up."""

import os
import pwd
import socket
import subprocess
import threading
from pathlib import Path

import onhost_fake_systemd
from a_model_host import ModelHost
from fork import Fork

from lockstep.onhost.core import errors
from lockstep.onhost.gateway import keys, privileged_switch
from lockstep.onhost.operator import switch_sh
from lockstep.onhost.switching import switch_commands

UNITS = {"qwen": "qwen.service", "mistral": "mistral.service", "spare": "spare.service"}


class SwitchingSpark(ModelHost):
    """A host on which mistral is hot; qwen is off, and so is spare, the fallback of qwen.

    `socket` plays systemd's part for lockstep-gateway-switch.socket.
    """

    def __init__(self, folder: Path, monkeypatch) -> None:
        more: dict[str, dict] = {name: {"start_timeout_s": 60} for name in UNITS}
        more["qwen"]["fallback"] = "spare"
        super().__init__(folder, monkeypatch, more, up="mistral")
        for name, unit in UNITS.items():
            self.tell(name, engine_url=self.engine.url)
            # Populated in any case, so that systemd's state alone tells which engine is alive.
            group = self.paths.groups_of_units / unit
            group.mkdir(parents=True)
            (group / "cgroup.events").write_text("populated 1\n")
        self.socket = folder / "switch.sock"
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(self.socket))
        self._listening.listen()
        #: The process started for each connection.
        self.processes: list[subprocess.Popen[bytes]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection:
                process = Fork(self._program, stdin=connection, stdout=connection)
                self.processes.append(process)

    def _program(self) -> int:
        """Run the program, with the worker that it has systemd start, of this root."""
        keys.ACCOUNT = pwd.getpwuid(os.getuid()).pw_name
        worker = ["switch.sh"]
        switch_commands.switch_program_command = lambda: worker
        onhost_fake_systemd.HERE[(*worker,)] = lambda words: errors.run_main(
            "switch.sh", lambda: switch_sh.main(words, self.paths)
        )
        return errors.run_main("gateway-switch", lambda: privileged_switch.main([], self.paths))

    def close(self) -> None:
        # Wakes the thread in accept(); close() alone would not.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for process in self.processes:
            process.wait(180)
        super().close()
