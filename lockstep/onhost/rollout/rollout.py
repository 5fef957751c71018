"""Put a deploy into force on a host with a hot model, or restore the previous state.

usage: rollout begin                     keep what is here: {"current": LINK, "paths": [...]} on
                                         standard input; with "whole": true until the deploy has
                                         ended well on all hosts
       rollout go [--gate -- ARGV...]    restart what runs with older files; it must generate a
                                         token, and the gate end with 0
       rollout up MODEL [--gate -- ARGV...]
                                         start a cluster's model on all members; it must generate a
                                         token, and the gate end with 0
       rollout ended ID [WHY]            on a member: forget the state kept under that ID, or with
                                         WHY return to it
       rollout back [WHY]                return to the previous generation on record; a cluster's
                                         model that is hot ends on all members, and stays down
       rollout return [WHY]              return to the kept state, of a deploy that did not end well
       rollout mend                      return if `go` was cut off; for systemd

exit codes: 0 done, 1 `go` failed: the previous model is hot again, as it was; `up` failed; 2 wrong
            use; 3 a fallback is hot instead, 4 no model is hot, 75 somebody else is switching
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

from lockstep.onhost.cluster import cluster_rollout
from lockstep.onhost.core import clock, config, errors, layout, output, program
from lockstep.onhost.engine import openai_api
from lockstep.onhost.records import generations, rollback_snapshot
from lockstep.onhost.rollout import deploy_rollback
from lockstep.onhost.switching import hot_change, rollout_lock, switch
from lockstep.onhost.systemd import restart_key, units

_TEST_QUESTION_S = 60.0
# The gateway queries systemd once a second for the hot model.
_GATEWAY_LEARNS_S = 5.0


def outdated_models(host: config.HostConfig, paths: layout.Paths) -> list[config.Model]:
    """Return models that run with another restart key than their unit files have now.

    A cluster's models are left out: the deploy stops them on all members before it comes here.
    """
    state = units.show(model.unit for model in host.models.values())
    return [
        model
        for model in host.models.values()
        if not model.cluster
        and state[model.unit].state in ("hot", "loading")
        and restart_key.old(state[model.unit], paths)
    ]


def restart_outdated_or_roll_back(paths: layout.Paths, gate: Sequence[str] = ()) -> int:
    """Restart outdated models, and roll back on failure. Exit code as in the docstring."""
    host = config.load_host(paths.models)
    with rollout_lock.hold_switch_lock(paths):
        for model in outdated_models(host, paths):
            work = hot_change.HotWork(model.name, rollout_lock.USER)
            with hot_change.keep_on_record(paths, "rollout", work):
                why = _refusal(host, model, paths, gate)
                if why:
                    output.say(f"{model.name}: {why}; returning to what there was")
                    return restore_and_restart(paths, model.name, errors.EXIT_FAILED)
            output.say(f"{model.name} is hot with what was deployed")
        rollback_snapshot.discard_snapshot(paths)
    return errors.EXIT_DONE


def _refusal(
    host: config.HostConfig, model: config.Model, paths: layout.Paths, gate: Sequence[str]
) -> str:
    """Return why a model may not stay as it was deployed, or ""."""
    if not switch.Switch(host, paths, user=rollout_lock.USER).restart_model(model.name):
        return "it does not start"
    restart_key.bring_gateway_up_to_date(paths)
    try:
        # Again, because the unit asks the engine itself and clients may ask through the gateway.
        _token_where_clients_ask(model)
    except (openai_api.NotReady, openai_api.RequestRefusal, errors.Problem) as answer:
        return f"no token comes where clients ask ({answer})"
    if gate and subprocess.run(list(gate), check=False).returncode != 0:
        return "the gate refused it"
    return ""


def _token_where_clients_ask(model: config.Model) -> None:
    """Request a token, and retry while the gateway learns the hot model. Raises as
    `ask_test_question`."""
    key, began = openai_api.api_key(model), clock.now()
    while True:
        try:
            openai_api.ask_test_question(model, key, _TEST_QUESTION_S)
            return
        except openai_api.NotReady:
            if clock.now() - began >= _GATEWAY_LEARNS_S:
                raise
        clock.sleep(0.2)


def return_to_previous_generation(paths: layout.Paths, why: str) -> int:
    """Return to the previous generation on record, and start the hot model again.

    After a deploy that did not end well that is the newest record: the host's state before it.
    """
    now, previous = generations.newest_record(paths), generations.previous_record(paths)
    unfinished_record = generations.begun_record(paths)
    if unfinished_record and now and unfinished_record["digest"] != now["digest"]:
        now, previous = unfinished_record, now
    if now is None or previous is None:
        raise errors.Problem("there is no record of a previous generation to return to")
    snapshot = rollback_snapshot.snapshot_between_records(previous, now)
    rollback_snapshot.refuse_foreign(paths, snapshot)
    group = next((model for model in _models_up(paths) if model.cluster), None)
    if group is not None and (code := cluster_rollout.run_switch("none")):
        return code
    with rollout_lock.hold_switch_lock(paths):
        host, hot = config.load_host(paths.models), _models_up(paths)
        for model in hot:
            switch.Switch(host, paths, user=rollout_lock.USER).stop_failed_model(model.name)
        rollback_snapshot.restore_snapshot(paths, snapshot)
        note = f"returned from generation {now['number']}" + (f": {why}" if why else "")
        new_record = generations.add_record(paths, previous, note)
        output.say(f"generation {new_record['number']}, as {previous['number']} was")
        if group is not None:
            output.say(
                f"NO MODEL IS HOT: {group.name} is served by all members of {group.cluster}. "
                f"Remedy: the same on each of them, then switch.sh {group.name}"
            )
            return errors.EXIT_NOTHING_HOT
        return deploy_rollback.revive_model(paths, hot[0].name) if hot else errors.EXIT_DONE


def _models_up(paths: layout.Paths) -> list[config.Model]:
    host = config.load_host(paths.models)
    state = units.show(model.unit for model in host.models.values())
    return [model for model in host.models.values() if state[model.unit].up]


def restore_and_restart(paths: layout.Paths, name: str, done_code: int) -> int:
    """Restore the kept state and start `name` again; return `done_code` if it is hot again."""
    host = config.load_host(paths.models)
    if name in host.models:
        switch.Switch(host, paths, user=rollout_lock.USER).stop_failed_model(name)
    snapshot = rollback_snapshot.load(paths)
    if snapshot is None:
        output.say("what there was before is not on record: nothing to return to")
    else:
        deploy_rollback.restore_deploy(paths, snapshot)
    code = deploy_rollback.revive_model(paths, name)
    paths.rollback_snapshot.unlink(missing_ok=True)
    return done_code if code == errors.EXIT_DONE else code


def roll_back_cut_off_rollout(paths: layout.Paths) -> int:
    """Roll back as ExecStopPost= of the job, if `go` or a cluster's start was cut off."""
    work = hot_change.take_unfinished_work(paths, "rollout")
    if work is None:
        return errors.EXIT_DONE
    with rollout_lock.hold_switch_lock(paths):
        output.say(f"the rollout of {work.model} was cut off; returning to what there was")
        return restore_and_restart(paths, work.model, errors.EXIT_DONE)


def _is_gate(words: Sequence[str]) -> bool:
    """Tell whether there are no words, or those of a gate."""
    return not words or (list(words[:2]) == ["--gate", "--"] and len(words) > 2)


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Run the command line; see the module's docstring."""
    paths = paths or layout.Paths()
    verb, *arguments = argv or [""]
    if verb == "go" and _is_gate(arguments):
        return restart_outdated_or_roll_back(paths, arguments[2:])
    if verb == "up" and arguments and _is_gate(arguments[1:]):
        return cluster_rollout.start_cluster(paths, arguments[0], arguments[3:])
    if verb == "ended" and 1 <= len(arguments) <= 2:
        return cluster_rollout.end_rollout(paths, *arguments)
    if verb == "back" and len(arguments) <= 1:
        return return_to_previous_generation(paths, "".join(arguments))
    if verb == "return" and len(arguments) <= 1:
        return deploy_rollback.roll_back_deploy(paths, "".join(arguments))
    if argv == ["mend"]:
        return roll_back_cut_off_rollout(paths)
    if argv == ["begin"]:
        request = json.load(sys.stdin)
        rollout, whole = request.get("rollout", ""), request.get("whole", False)
        rollback_snapshot.save_snapshot(
            paths, request["current"], request["paths"], rollout, whole=whole
        )
        return errors.EXIT_DONE
    return program.usage(__doc__)
