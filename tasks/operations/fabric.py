"""Addresses of the fast link, which stay only after a new login through them."""

from __future__ import annotations

from pyinfra import host
from pyinfra.api import operation

from lockstep.files.managed_file import ManagedFile
from lockstep.inventory.settings import Settings
from lockstep.resources import fabric
from lockstep.resources.files import file_changes
from lockstep.system import netplan
from lockstep.tasks.operations.firewall import KeepAfterLogin
from lockstep.tasks.run import reader_answers as facts
from lockstep.tasks.run import remote_commands
from lockstep.tasks.run.remote_commands import Commands

# Less than connection.DEAD_PEER_S, so that a connection which the new addresses cut is there again
# before it is given up.
UNDO_AFTER_S = 40
_PROGRAM = netplan.PROGRAM


@operation()
def apply_addresses(file: ManagedFile, settings: Settings) -> Commands:
    """Apply the netplan file, log in anew, and only then keep it.

    If the login fails, or this process dies, the host gets its old addresses again.
    """
    answers = facts.reader_answers(("network.fabric", "files"))
    if not answers.keys() >= {"network.fabric", "files"}:
        return
    wrong = fabric.faults(settings.fabric, answers["network.fabric"])
    changes = file_changes([file], (), (), answers["files"])
    if not (wrong or changes):
        host.noop("the fast link has its addresses")
        return
    if not wrong and all(old_text == text for _, old_text, text in changes.differences):
        # Applied anew, the addresses would be cut under a model that uses them.
        yield remote_commands.changing_command(["chmod", file.mode, file.path])
        yield remote_commands.changing_command(["chown", f"{file.owner}:{file.group}", file.path])
        return
    for row in wrong:
        host.log(f"{row.item}: {row.found} instead of {row.expected}")
    adopt = ["--adopt"] if netplan.NETPLAN in settings.adopt else []
    words = [*_PROGRAM, "try", "--seconds", str(UNDO_AFTER_S), *adopt]
    yield remote_commands.changing_command(words, _stdin=[file.text])
    keep = KeepAddresses.of_argv([*_PROGRAM, "keep"])
    keep.ssh_ports = settings.firewall.ssh_ports
    yield keep


class KeepAddresses(KeepAfterLogin):
    """A command that keeps the new addresses when a login over a new connection succeeds."""

    undo_words = (*_PROGRAM, "back")
    refusal = (
        "the new addresses of the fast link would lock you out: {fault}.\n"
        "Those of before are in force again. Remedy: correct fabric.interfaces, or set "
        "fabric.netplan to False."
    )
