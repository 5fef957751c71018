"""The guard over the load of a rank above 0, whose unit has no readiness check.

usage: guard-rank MODEL

The start gate of such a rank starts it as a unit of its own. It ends when the cluster's switch is
over here, or the rank's unit has ended.

exit codes: 0 the load is over, 2 wrong use or unreadable configuration
"""

from __future__ import annotations

from lockstep.onhost.cluster import run_records
from lockstep.onhost.core import clock, config, errors, event_lines, layout, program_command_lines
from lockstep.onhost.engine import free_pages_during_load
from lockstep.onhost.systemd import units

_EVERY_S = 1.0


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Run the command line; see the module's docstring."""
    parser = program_command_lines.parser(__doc__)
    parser.add_argument("model")
    options = parser.parse_args(argv)
    paths = paths or layout.Paths()
    model = config.load_host(paths.models).model(options.model)
    last_s = clock.now() + model.start_timeout_s
    with free_pages_during_load.LoadGuard(model, paths, _say).watching():
        while _is_starting(model, paths) and clock.now() < last_s:
            clock.sleep(_EVERY_S)
    return errors.EXIT_DONE


def _is_starting(model: config.Model, paths: layout.Paths) -> bool:
    # The agent ends the admission when the switch succeeds, fails or is undone.
    part = run_records.recorded_switch_part(paths)
    is_admitted = part is not None and part.admitted_model == model.name
    return is_admitted and units.units_by_name([model.unit])[model.unit].up


def _say(line: str) -> None:
    event_lines.say(f"lockstep rank guard: {line}")
