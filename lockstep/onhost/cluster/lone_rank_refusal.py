"""Let a rank of a cluster's model start only with its cluster.

usage: cluster admit MODEL

Runs as root in ExecStartPre=+ of every unit that is one rank of several.

exit codes: 0 the cluster is being started, or systemd stops the unit, 1 it is not: a rank is never
            started alone, nor without its fast link; so too when somebody else ends this,
            2 wrong use
"""

from __future__ import annotations

from lockstep.onhost.cluster import run_records
from lockstep.onhost.core import config, errors, layout, program_command_lines
from lockstep.onhost.system import link_presence


def check_rank_admitted(name: str, paths: layout.Paths) -> None:
    """Return if this host's agent is just starting the model; raise Problem otherwise."""
    cluster = config.load_host(paths.models).cluster_of_model(name)
    if cluster is None:
        return
    part = run_records.recorded_switch_part(paths)
    if part is None or not part.is_admitted(name):
        raise errors.Problem(
            f"{name} runs on {len(cluster.members)} Sparks and starts on all of them together, "
            f"never here alone. Remedy: switch.sh {name}"
        )
    link_presence.refuse_missing_links(name, cluster, paths)


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Run the command line; see the module's docstring."""
    if len(argv) != 2 or argv[0] != "admit":
        return program_command_lines.print_usage(__doc__)
    check_rank_admitted(argv[1], paths or layout.Paths())
    return errors.EXIT_DONE
