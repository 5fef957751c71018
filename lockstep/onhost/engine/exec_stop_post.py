"""The last step of a model's unit, for whatever reason it has ended.

usage: boots ended MODEL      note that the unit of MODEL has ended, and give the disks with its
                              weights their own read-ahead, if it ended while it loaded

Runs as root in ExecStopPost=-+ of every model unit.

exit codes: 0 done, 2 wrong use
"""

from __future__ import annotations

from lockstep.onhost.core import errors, event_lines, layout, program_command_lines
from lockstep.onhost.records import models_by_boot
from lockstep.onhost.system import disk_read_ahead


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Run the command line; see the module's docstring."""
    if len(argv) != 2 or argv[0] != "ended":
        return program_command_lines.print_usage(__doc__)
    paths = paths or layout.Paths()
    disk_read_ahead.put_back(paths, event_lines.say, argv[1])
    models_by_boot.record_model_end(paths, argv[1])
    return errors.EXIT_DONE
