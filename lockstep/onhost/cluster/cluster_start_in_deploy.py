"""One member's part of a deploy that changes a cluster's hot model.

The deploy has a session to every member, and tells each whether to start the cluster or to return.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from lockstep.onhost.cluster import member_client
from lockstep.onhost.core import config, errors, event_lines, layout
from lockstep.onhost.switching import switch_commands

_TOKEN_S = 45.0


def start_cluster(paths: layout.Paths, name: str, gate: Sequence[str] = ()) -> int:
    """Start the cluster of the model `name`; return 1 if it does not serve, with a last line why.

    The cluster is down on all members. `gate` is a program that must end with 0 after the token.
    """
    cluster = config.load_host(paths.models).cluster_of_model(name)
    if cluster is None:
        raise errors.Problem(f"{name} is no model of a cluster here", errors.EXIT_USAGE)
    why = ""
    if run_switch(name) != errors.EXIT_DONE:
        why = "it does not start"
    else:
        caller = member_client.MemberClient.from_cluster(cluster, paths)
        try:
            token = caller.ask(cluster.first_member, "token", {"model": name}, _TOKEN_S)
            event_lines.say(f"{name}: a token came, {token['said']}")
        except errors.Problem as problem:
            why = f"no token comes ({problem})"
    if not why and gate and subprocess.run(list(gate), check=False).returncode != 0:
        why = "the gate refused it"
    if why:
        event_lines.say(f"{name}: with what was deployed {why}")
        return errors.EXIT_FAILED
    event_lines.say(f"{name} is hot on all members with what was deployed")
    return errors.EXIT_DONE


def run_switch(name: str) -> int:
    """Return the exit code of a switch; its output goes where ours goes."""
    return subprocess.run(
        [*switch_commands.switch_program_command(), name, "--wait"], check=False
    ).returncode
