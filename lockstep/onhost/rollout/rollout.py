"""Put a deploy into force on a host with a hot model, or restore the previous state.

usage: rollout note                      note in the journal what is at {"paths": [...]}, on
                                         standard input; with "rollout": ID of a cluster's
       rollout go [--gate -- ARGV...]    restart what runs with older files; it must generate a
                                         token, and the gate end with 0
       rollout up MODEL [--gate -- ARGV...]
                                         start a cluster's model on all members; it must generate a
                                         token, and the gate end with 0
       rollout ended ID WHY              on a member: return from the rollout of that ID
       rollout back [--keep-data] [WHY]  return to the generation before, or from a deploy that did
                                         not end well; a cluster's model that is hot ends on all
                                         members, and stays down. With --keep-data Open WebUI's
                                         image begins with the present data
       rollout return [WHY]              return from a deploy that did not end well
       rollout mend                      return if `go` was cut off; for systemd

exit codes: 0 done, 1 `go` failed: the previous model is hot again, as it was; `up` failed; 2 wrong
            use; 3 a fallback is hot instead, 4 no model is hot, 75 somebody else is switching
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence

from lockstep.onhost.cluster import cluster_start_in_deploy
from lockstep.onhost.core import clock, config, errors, event_lines, layout, program_command_lines
from lockstep.onhost.engine import openai_api
from lockstep.onhost.records import audit_log, deploy_lock, generations, rollback_journal
from lockstep.onhost.rollout import deploy_rollback
from lockstep.onhost.switching import hot_change_under_way, rollout_lock, switch
from lockstep.onhost.systemd import outdated_units, transient_job, units

_TEST_QUESTION_S = 60.0
# The gateway queries systemd once a second for the hot model.
_GATEWAY_LEARNS_S = 5.0
_KEEP_DATA = "--keep-data"


def outdated_models(host: config.HostConfig, paths: layout.Paths) -> list[config.Model]:
    """Return models that run with another restart key than their unit files have now.

    A cluster's models are left out: the deploy stops them on all members before it comes here.
    """
    state = units.units_by_name(model.unit for model in host.models.values())
    return [
        model
        for model in host.models.values()
        if not model.cluster
        and state[model.unit].state in ("hot", "loading")
        and outdated_units.has_outdated_key(state[model.unit], paths)
    ]


def restart_outdated_or_roll_back(paths: layout.Paths, gate: Sequence[str] = ()) -> int:
    """Restart outdated models, and roll back on failure. Exit code as in the docstring."""
    host = config.load_host(paths.models)
    with rollout_lock.hold_switch_lock(paths):
        for model in outdated_models(host, paths):
            work = hot_change_under_way.HotWork(model.name, rollout_lock.USER)
            with hot_change_under_way.keep_on_record(paths, "rollout", work):
                why = _restart_and_check(host, model, paths, gate)
                if why:
                    event_lines.say(f"{model.name}: {why}; returning to what there was")
                    return restore_and_restart(paths, model.name, errors.EXIT_FAILED)
            event_lines.say(f"{model.name} is hot with what was deployed")
    return errors.EXIT_DONE


def _restart_and_check(
    host: config.HostConfig, model: config.Model, paths: layout.Paths, gate: Sequence[str]
) -> str:
    """Return why a model may not stay as it was deployed, or ""."""
    if not switch.Switch(host, paths, user=rollout_lock.USER).restart_model(model.name):
        return "it does not start"
    outdated_units.bring_gateway_up_to_date(paths)
    try:
        # Again, because the unit asks the engine itself and clients may ask through the gateway.
        _request_token_as_client(model)
    except (openai_api.NotReady, openai_api.RequestRefusal, errors.Problem) as answer:
        return f"no token comes where clients ask ({answer})"
    if gate and subprocess.run(list(gate), check=False).returncode != 0:
        return "the gate refused it"
    return ""


def _request_token_as_client(model: config.Model) -> None:
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


def return_to_previous_generation(
    paths: layout.Paths, why: str, *, keeps_data: bool = False
) -> int:
    """Return to the generation before the present one; a model with other files restarts.

    After a deploy that did not end well that is the newest record: the host's state before it.
    """
    with deploy_lock.keep_deploys_away("rollback", paths):
        document = rollback_journal.journal_to_follow(paths)
        if document is None:
            raise errors.Problem("there is no record of a previous generation to return to")
        rollback_journal.refuse_foreign(paths, document)
        group = next((model for model in _models_up(paths) if model.cluster), None)
        if group is not None and (code := cluster_start_in_deploy.run_switch("none")):
            return code
        with rollout_lock.hold_switch_lock(paths):
            code = _follow_journal(paths, document, why, keeps_data)
        if code == errors.EXIT_DONE:
            transient_job.clear_failed_jobs()
    summary = f"generation {generations.newest_number(paths)}, as {document['since']} was"
    event_lines.say(summary)
    audit_log.add_audit_line(os.environ.get("SUDO_USER", "root"), "rollback", summary)
    if group is not None:
        event_lines.say(
            f"{group.name} stays down until all members of {group.cluster} have returned. Then: "
            f"switch.sh {group.name}"
        )
        return errors.EXIT_NOTHING_HOT
    return code


def _follow_journal(
    paths: layout.Paths, document: rollback_journal.Document, why: str, keeps_data: bool
) -> int:
    """Return by a journal under the switch lock. Exit code as in the docstring."""
    is_unfinished = rollback_journal.unfinished_journal(paths) is not None
    hot = next(iter(_models_up(paths)), None)
    if not is_unfinished:
        # What returns from the return.
        rollback_journal.note_before_change(paths, document["before"])
    has_restored = deploy_rollback.restore_deploy(
        paths, document | ({"webui": ""} if keeps_data else {}), why
    )
    name = hot.name if hot else None
    if name is not None and name not in config.load_host(paths.models).models:
        event_lines.say(f"{name} was stopped: it was not there before")
        name = None
    code = deploy_rollback.revive_outdated_model(paths, name)
    if is_unfinished:
        rollback_journal.discard(paths)
    else:
        rollback_journal.finish(paths)
    return code or (errors.EXIT_DONE if has_restored else errors.EXIT_FAILED)


def _models_up(paths: layout.Paths) -> list[config.Model]:
    host = config.load_host(paths.models)
    state = units.units_by_name(model.unit for model in host.models.values())
    return [model for model in host.models.values() if state[model.unit].up]


def restore_and_restart(paths: layout.Paths, name: str, done_code: int) -> int:
    """Return by the journal and start `name` again; return `done_code` if it is hot again."""
    host = config.load_host(paths.models)
    if name in host.models:
        switch.Switch(host, paths, user=rollout_lock.USER).stop_failed_model(name)
    document = rollback_journal.unfinished_journal(paths)
    if document is None:
        event_lines.say("what there was before is not on record: nothing to return to")
    else:
        deploy_rollback.restore_deploy(paths, document)
    code = deploy_rollback.revive_model(paths, name)
    rollback_journal.discard(paths)
    return done_code if code == errors.EXIT_DONE else code


def roll_back_cut_off_rollout(paths: layout.Paths) -> int:
    """Roll back as ExecStopPost= of the job, if `go` or a cluster's start was cut off."""
    work = hot_change_under_way.take_unfinished_work(paths, "rollout")
    if work is None:
        return errors.EXIT_DONE
    with rollout_lock.hold_switch_lock(paths):
        event_lines.say(f"the rollout of {work.model} was cut off; returning to what there was")
        return restore_and_restart(paths, work.model, errors.EXIT_DONE)


def _is_valid_gate_option(words: Sequence[str]) -> bool:
    """Tell whether there are no words, or those of a gate."""
    return not words or (list(words[:2]) == ["--gate", "--"] and len(words) > 2)


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Run the command line; see the module's docstring."""
    paths = paths or layout.Paths()
    verb, *arguments = argv or [""]
    if verb == "go" and _is_valid_gate_option(arguments):
        return restart_outdated_or_roll_back(paths, arguments[2:])
    if verb == "up" and arguments and _is_valid_gate_option(arguments[1:]):
        return cluster_start_in_deploy.start_cluster(paths, arguments[0], arguments[3:])
    if verb == "ended" and len(arguments) == 2:
        return deploy_rollback.return_from_cluster_rollout(paths, *arguments)
    if verb == "back" and len(reason := [word for word in arguments if word != _KEEP_DATA]) <= 1:
        keeps_data = _KEEP_DATA in arguments
        return return_to_previous_generation(paths, "".join(reason), keeps_data=keeps_data)
    if verb == "return" and len(arguments) <= 1:
        return deploy_rollback.roll_back_deploy(paths, "".join(arguments))
    if argv == ["mend"]:
        return roll_back_cut_off_rollout(paths)
    if argv == ["note"]:
        request = json.load(sys.stdin)
        rollback_journal.note_before_change(paths, request["paths"], rollout=request.get("rollout"))
        return errors.EXIT_DONE
    return program_command_lines.print_usage(__doc__)
