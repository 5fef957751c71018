"""Reading back of the host's state at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyinfra import host, state
from pyinfra.api import operation

from lockstep.deploy.summary import hot_names, rows
from lockstep.resources.fact_comparison import unmet_rows
from lockstep.resources.units import running_units, unit_expectations, unit_facts
from lockstep.tasks.operations.generations import RECORD
from lockstep.tasks.run import reader_answers as facts
from lockstep.tasks.run import remote_commands, run_report, run_state
from lockstep.tasks.run.remote_commands import Commands
from lockstep.units.gateway_unit import chat_url, local_url, open_url
from lockstep.units.scripts import switch_path

# The record is read with them, for the operation after this one.
UNSETTLED = "units.await_settled_units"
READ_BACK = {"units", "environments", "machine.available", RECORD}


@operation()
def collect_closing_table() -> Commands:
    """Collect units, engine versions and the hot model for the closing table; change nothing.

    It fails where a unit that must run does not come up.
    """
    host.noop("the state is read, nothing is written")
    if not state.is_executing:
        return
    desired_state = run_state.current_desired_state()
    answers = facts.reader_answers(READ_BACK)
    if not set(answers) >= READ_BACK:
        return
    states = answers["units"]
    names = [name for name in running_units(desired_state) if not states[name]["settled"]]
    reasons = facts.refreshed_answers({UNSETTLED: names}).get(UNSETTLED) if names else {}
    if reasons is None:
        return
    if reasons:
        lines = [f"{name} is {reason}" for name, reason in reasons.items()]
        yield from remote_commands.fail_host_operation("\n".join(lines))
        return
    for fault in unit_differences(desired_state.unit_files, states):
        run_report.record_closing_text(host.name, f"{host.name}: {fault}")
    engines = answers["environments"]
    address = host.data.get("ssh_hostname") or host.name
    user = host.data.get("ssh_user")
    ssh = f"ssh {user}@{address}" if user else f"ssh {address}"
    unchecked_images, available = (
        desired_state.unchecked_images(engines),
        answers["machine.available"],
    )
    run_report.outcome_of_host(host.name).snapshot = {
        "rows": rows(
            desired_state.plan, address, answers["units"], engines, available, unchecked_images
        ),
        "ssh": desired_state.plan.settings.login or ssh,
        "switch": switch_path(desired_state.plan.settings),
        "serves": [model.name for model in desired_state.plan.models],
        "hot": list(hot_names(desired_state.plan, answers["units"])),
        "page": open_url(desired_state.plan.settings, address)
        or local_url(desired_state.plan.settings),
        "chat": chat_url(desired_state.plan.settings, address),
        "unanswered": {
            digest: record.get("unanswered") or ""
            for digest, record in engines["images"].items()
            if record
        },
    }


def unit_differences(
    units: Sequence[str], states: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    """Yield the differences between units as written and as systemd holds them, in words.

    Args:
        units: Names of units of ours.
        states: Answer of the reader `units` about them.
    """
    observed_facts = unit_facts(states)
    for name in [name for name in units if name in states]:
        rows = dict(
            unmet_rows(unit_expectations(name, "", at_boot=False, runs=False), observed_facts)
        )
        if row := rows.get("unit"):
            load = row.found or "not-found"
            yield f"{name} was written, and is {load} for systemd: `systemctl status {name}`"
        elif row := rows.get("unit path"):
            yield (
                f"systemd reads {row.found}, not {row.expected}: remove the former, and deploy "
                "again"
            )
        elif name in observed_facts["unread unit"]:
            yield f"systemd holds an older {name} than was written: `sudo systemctl daemon-reload`"
