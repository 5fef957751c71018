"""Put a deploy into force on a host with a hot model, or restore the previous state.

usage: rollout begin                     keep what there is: {"current": LINK, "paths": [...]} on
                                         standard input; with "whole": true until the deploy has
                                         ended well on all hosts
       rollout go [--gate -- ARGV...]    restart what runs an older generation; it must generate a
                                         token, and the gate end with 0
       rollout up TARGET [--gate -- ARGV...]
                                         start a cluster's model on all members; it must generate a
                                         token, and the gate end with 0
       rollout ended ID [WHY]            of a member: forget what it kept under that ID, or with WHY
                                         return to it
       rollout back [WHY]                return to the previous generation on record; a cluster's
                                         model that is hot ends on all members, and stays down
       rollout return [WHY]              return to what was kept, of a deploy that did not end well
       rollout mend                      return where `go` was cut off; for systemd

exit codes: 0 done, 1 `go` failed: what was hot is hot again, as it was; `up` failed; 2 wrong use;
            3 a fallback is hot instead, 4 no model is hot, 75 somebody else is switching
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

from lockstep.onhost.cluster import cluster_rollout
from lockstep.onhost.core import clock, config, errors, layout, output, program
from lockstep.onhost.engine import openai_api
from lockstep.onhost.records import before, generations
from lockstep.onhost.rollout import taken_back
from lockstep.onhost.switching import rollout_mark, switch
from lockstep.onhost.systemd import generation, units

_CANARY_S = 60.0
# The gateway asks systemd once a second what is hot.
_GATEWAY_LEARNS_S = 5.0


def outdated(host: config.Host, paths: layout.Paths) -> list[config.Target]:
    """Targets that run with another generation than their unit files say now.

    Not those of a cluster: the deploy takes them down on all members before it comes here.
    """
    state = units.show(target.unit for target in host.targets.values())
    return [
        target
        for target in host.targets.values()
        if not target.cluster
        and state[target.unit].state in ("hot", "loading")
        and generation.old(state[target.unit], paths)
    ]


def go(paths: layout.Paths, gate: Sequence[str] = ()) -> int:
    """Restart what is outdated; where that fails, return. Exit code as in the docstring."""
    host = config.load_host(paths.targets)
    with rollout_mark.alone(paths):
        for target in outdated(host, paths):
            with rollout_mark.marked(paths, target.name):
                why = _refusal(host, target, paths, gate)
                if why:
                    output.say(f"{target.name}: {why}; returning to what there was")
                    return switched_back(paths, target.name, errors.EXIT_FAILED)
            output.say(f"{target.name} is hot with what was deployed")
        before.over(paths)
    return errors.EXIT_DONE


def _refusal(
    host: config.Host, target: config.Target, paths: layout.Paths, gate: Sequence[str]
) -> str:
    """Why a target may not stay as it was deployed; "" when it may."""
    if not switch.Switch(host, paths, user=rollout_mark.USER).again(target.name):
        return "it does not start"
    generation.gateway_in_force(paths)
    try:
        # Once more, for the unit asks the engine itself and clients may ask through the gateway.
        _token_where_clients_ask(target)
    except (openai_api.NotReady, openai_api.Refused, errors.Problem) as answer:
        return f"no token comes where clients ask ({answer})"
    if gate and subprocess.run(list(gate), check=False).returncode != 0:
        return "the gate refused it"
    return ""


def _token_where_clients_ask(target: config.Target) -> None:
    """A token, within the time in which the gateway learns what is hot. As `canary` raises."""
    key, began = openai_api.api_key(target), clock.now()
    while True:
        try:
            openai_api.canary(target, key, _CANARY_S)
            return
        except openai_api.NotReady:
            if clock.now() - began >= _GATEWAY_LEARNS_S:
                raise
        clock.sleep(0.2)


def back(paths: layout.Paths, why: str) -> int:
    """Return to the previous generation on record; what is hot is started again.

    Of a deploy that has not ended well that is the newest one: this host was it before.
    """
    now, previous = generations.newest(paths), generations.previous(paths)
    begun = generations.begun(paths)
    if begun and now and begun["digest"] != now["digest"]:
        now, previous = begun, now
    if now is None or previous is None:
        raise errors.Problem("there is no record of a previous generation to return to")
    kept = before.of_records(previous, now)
    before.refuse_foreign(paths, kept)
    group = next((target for target in _up(paths) if target.cluster), None)
    if group is not None and (code := cluster_rollout.switched("none")):
        return code
    with rollout_mark.alone(paths):
        host, hot = config.load_host(paths.targets), _up(paths)
        for target in hot:
            switch.Switch(host, paths, user=rollout_mark.USER).stop(target.name)
        before.restore(paths, kept)
        note = f"returned from generation {now['number']}" + (f": {why}" if why else "")
        written = generations.record(paths, previous, note)
        output.say(f"generation {written['number']}, as {previous['number']} was")
        if group is not None:
            output.say(
                f"NO MODEL IS HOT: {group.name} is served by all members of {group.cluster}. "
                f"Remedy: the same on each of them, then switch.sh {group.name}"
            )
            return errors.EXIT_NOTHING_HOT
        return _revived(paths, hot[0].name) if hot else errors.EXIT_DONE


def _up(paths: layout.Paths) -> list[config.Target]:
    host = config.load_host(paths.targets)
    state = units.show(target.unit for target in host.targets.values())
    return [target for target in host.targets.values() if state[target.unit].up]


def switched_back(paths: layout.Paths, name: str, done: int) -> int:
    """Return to what was kept, and start `name` again; `done` when it is hot again."""
    host = config.load_host(paths.targets)
    if name in host.targets:
        switch.Switch(host, paths, user=rollout_mark.USER).stop(name)
    kept = before.there(paths)
    if kept is None:
        output.say("what there was before is not on record: nothing to return to")
    else:
        before.restore(paths, kept)
    code = _revived(paths, name)
    paths.before.unlink(missing_ok=True)
    return done if code == errors.EXIT_DONE else code


def _revived(paths: layout.Paths, name: str) -> int:
    host = config.load_host(paths.targets)
    if name not in host.targets:
        output.say(f"NO MODEL IS HOT: there was no {name} before")
        return errors.EXIT_NOTHING_HOT
    code = switch.Switch(host, paths, user=rollout_mark.USER).revive(name)
    if code == errors.EXIT_DONE:
        output.say(f"{name} is hot again, as it was before this deploy")
    return code


def mend(paths: layout.Paths) -> int:
    """ExecStopPost= of the job: `go` or `together` did not come to its own end."""
    name = rollout_mark.take_mark(paths)
    if name is None:
        return errors.EXIT_DONE
    with rollout_mark.alone(paths):
        output.say(f"the rollout of {name} was cut off; returning to what there was")
        return switched_back(paths, name, errors.EXIT_DONE)


def _gated(words: Sequence[str]) -> bool:
    """Whether these are no words, or those of a gate."""
    return not words or (list(words[:2]) == ["--gate", "--"] and len(words) > 2)


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Command line; see the module's docstring."""
    paths = paths or layout.Paths()
    verb, *rest = argv or [""]
    if verb == "go" and _gated(rest):
        return go(paths, rest[2:])
    if verb == "up" and rest and _gated(rest[1:]):
        return cluster_rollout.up(paths, rest[0], rest[3:])
    if verb == "ended" and 1 <= len(rest) <= 2:
        return cluster_rollout.ended(paths, *rest)
    if verb == "back" and len(rest) <= 1:
        return back(paths, "".join(rest))
    if verb == "return" and len(rest) <= 1:
        return taken_back.take_back(paths, "".join(rest))
    if argv == ["mend"]:
        return mend(paths)
    if argv == ["begin"]:
        asked = json.load(sys.stdin)
        rollout, whole = asked.get("rollout", ""), asked.get("whole", False)
        before.keep(paths, asked["current"], asked["paths"], rollout, whole=whole)
        return errors.EXIT_DONE
    return program.usage(__doc__)
