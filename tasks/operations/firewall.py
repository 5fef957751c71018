"""The firewall in force, which stays only after a new login through it."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

from pyinfra import host
from pyinfra.api import operation
from pyinfra.api.exceptions import ConnectError
from pyinfra.connectors.local import LocalConnector
from pyinfra.connectors.ssh import SSHConnector
from pyinfra.connectors.util import CommandOutput

from lockstep.resources.firewall import is_in_force
from lockstep.resources.units import kinds_to_mend
from lockstep.system.firewall import PROGRAM, UNIT
from lockstep.tasks.run import reader_answers as facts
from lockstep.tasks.run import remote_commands
from lockstep.tasks.run.remote_commands import Commands

# Seconds after which the host takes its new rules back by itself: a login takes a few.
UNDO_AFTER_S = 90


@operation()
def load_rules(rules: str, ssh_ports: Collection[int]) -> Commands:
    """Load the rules, log in anew, and only then keep them for the next boot.

    If the login fails, or this process dies, the host gets its old rules again.
    """
    answers = facts.reader_answers(("firewall", "units"))
    if not answers.keys() >= {"firewall", "units"}:
        return
    is_current = is_in_force(rules, answers["firewall"])
    if not is_current:
        yield remote_commands.changing_command([*PROGRAM, "try", "--seconds", str(UNDO_AFTER_S)])
        keep = KeepAfterLogin.of_argv([*PROGRAM, "keep"])
        keep.ssh_ports = ssh_ports
        yield keep
    kinds = kinds_to_mend(UNIT, answers["units"].get(UNIT, {}), "", at_boot=True, runs=True)
    if kinds & {"boot", "running"}:
        # It reloads systemd itself.
        yield remote_commands.changing_command(["systemctl", "enable", "--now", "--quiet", UNIT])
    elif kinds & {"unit", "unread unit"}:
        yield remote_commands.changing_command(["systemctl", "daemon-reload"])
    if is_current and not kinds:
        host.noop("the firewall is in force")


class KeepAfterLogin(remote_commands.ChangingCommand):
    """A command that keeps the rules on trial when a login over a new connection succeeds."""

    ssh_ports: Collection[int] = ()
    undo_words: tuple[str, ...] = (*PROGRAM, "back")
    refusal = (
        "the firewall would lock you out: {fault}.\n"
        "The rules of before are in force again. Remedy: name the port of sshd in "
        "firewall.ssh_ports, or set firewall.enabled to False."
    )

    def send_to_host(self, state: Any, host: Any, connector_arguments: Any) -> Any:
        """Log in anew; then run this command, or restore what there was before."""
        fault = _login_fault(state, host, self.ssh_ports)
        if fault is None:
            return super().send_to_host(state, host, connector_arguments)
        # The existing connection passes whatever the rules say of new ones.
        remote_commands.changing_command(self.undo_words).execute(state, host, connector_arguments)
        remote_commands.report_failure(host, self.refusal.format(fault=fault))
        return False, CommandOutput([])


def _login_fault(state: Any, host: Any, ssh_ports: Collection[int]) -> str | None:
    """Return why a new login does not come through, None when it does."""
    if isinstance(host.connector, SSHConnector):
        fresh = SSHConnector(state, host)
        try:
            fresh.connect()
        except ConnectError as error:
            return f"a new login fails ({error})"
        assert fresh.client
        fresh.client.close()
    elif isinstance(host.connector, LocalConnector):
        # Values: "client's address, its port, our address, our port", where an SSH session runs
        # this.
        port = os.environ.get("SSH_CONNECTION", "").split()[3:]
        if port and int(port[0]) not in ssh_ports:
            return f"this SSH session came in at port {port[0]}"
    return None
