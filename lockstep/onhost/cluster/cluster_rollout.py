"""One member's part of a deploy that changes a cluster's hot model.

The deploy has a session to every member, and says there who starts the group and who returns.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from lockstep.onhost.cluster import wire_client
from lockstep.onhost.core import config, errors, layout, output
from lockstep.onhost.records import before, generations
from lockstep.onhost.switching import rollout_mark, switch_job

_TOKEN_S = 45.0


def up(paths: layout.Paths, name: str, gate: Sequence[str] = ()) -> int:
    """Start the group of the target `name`; 1 where it does not serve, and the last line says why.

    It is down on all members. `gate` is a program that has to end with 0 after the token.
    """
    cluster = config.load_host(paths.targets).cluster(name)
    if cluster is None:
        raise errors.Problem(f"{name} is no model of a cluster here", errors.EXIT_USAGE)
    why = ""
    if switched(name) != errors.EXIT_DONE:
        why = "it does not start"
    else:
        caller = wire_client.Caller.of(cluster, paths)
        try:
            token = caller.ask(cluster.first, "token", {"target": name}, _TOKEN_S)
            output.say(f"{name}: a token came, {token['said']}")
        except errors.Problem as problem:
            why = f"no token comes ({problem})"
    if not why and gate and subprocess.run(list(gate), check=False).returncode != 0:
        why = "the gate refused it"
    if why:
        output.say(f"{name}: with what was deployed {why}")
        return errors.EXIT_FAILED
    output.say(f"{name} is hot on all members with what was deployed")
    return errors.EXIT_DONE


def ended(paths: layout.Paths, rollout: str, why: str = "") -> int:
    """Forget what this member kept under that id, or return to it and put `why` on record."""
    with rollout_mark.alone(paths):
        kept = before.there(paths)
        if kept is None or kept.get("rollout") != rollout:
            output.say("nothing was changed here")
            return errors.EXIT_DONE
        if why:
            before.restore(paths, kept)
            generations.returned(paths, int(kept["since"]), why)
            output.say("as it was before this deploy")
        paths.before.unlink(missing_ok=True)
    return errors.EXIT_DONE


def switched(name: str) -> int:
    """Exit code of a switch; its lines go where ours go."""
    return subprocess.run([*switch_job.program(), name, "--wait"], check=False).returncode
