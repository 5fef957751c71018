"""Ask the hot model questions with one right answer, and say whether it makes sense.

usage: sense [MODEL] [--rest]

Asks MODEL, or the hot model: echo eight identifiers, count to a hundred, one tool call if the
recipe has a parser; then the first two once more at the same moment. Log-probabilities must be
finite. --rest is for the timer: it asks once a day, only while no request is in the engine and
nobody switches; it restarts nothing, and ends with 0 for every finding. `switch.sh status` and
`lockstep diff` show it.

exit codes: 0 it makes sense, or --rest; 1 nonsense; 2 wrong use, no model is hot, or nothing could
            be asked
"""

from __future__ import annotations

import time

from lockstep.onhost.core import (
    config,
    errors,
    event_lines,
    layout,
    program_command_lines,
    switch_lock,
)
from lockstep.onhost.engine import openai_api, sense_check
from lockstep.onhost.records import watch_findings
from lockstep.onhost.switching import hot_change_under_way
from lockstep.onhost.systemd import units

# The timer comes each hour, and finds a busy engine at most of them.
_AGAIN_S = 20 * 3600.0


def ask_sense_questions(
    model: config.Model, paths: layout.Paths, pid: int
) -> sense_check.SenseVerdict:
    """Ask a model the questions, record the verdict, and print it."""
    engine_model = model.at_engine_address
    verdict = sense_check.judge_engine_sense(engine_model, openai_api.api_key(engine_model))
    look = watch_findings.SenseLook(model.name, pid, verdict.state, verdict.words)
    watch_findings.save(paths, look)
    write_to_journal(f"{model.name} {verdict.words}")
    return verdict


def ask_daily_while_idle(model: config.Model, paths: layout.Paths, unit: units.Unit) -> None:
    """Ask for the timer: once a day, and only while the engine is idle."""
    last_look = watch_findings.load(paths).senses.get(model.name)
    if last_look and last_look.pid == unit.main_pid and time.time() - last_look.at < _AGAIN_S:
        return
    try:
        engine_model = model.at_engine_address
        counters = openai_api.counters(engine_model, openai_api.api_key(engine_model))
    except openai_api.NotReady:
        return
    if counters is None or counters.outstanding:
        return
    if ask_sense_questions(model, paths, unit.main_pid).state != "nonsense":
        return
    # Checked again, because the unit may have been stopped meanwhile.
    now = units.units_by_name([model.unit])[model.unit]
    if now.state == "hot" and now.main_pid == unit.main_pid:
        ask_sense_questions(model, paths, unit.main_pid)
    else:
        watch_findings.remove_sense_look(paths, model.name)


def write_to_journal(line: str) -> None:
    """Write one line to the journal."""
    event_lines.say(f"lockstep sense: {line}")


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Run the command line; see the module's docstring."""
    parser = program_command_lines.parser(__doc__)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--rest", action="store_true")
    options = parser.parse_args(argv)
    paths = paths or layout.Paths()
    host = config.load_host(paths.models)
    candidates = [host.model(options.model)] if options.model else list(host.models.values())
    state = units.units_by_name(model.unit for model in candidates)
    hot = next((model for model in candidates if state[model.unit].state == "hot"), None)
    answers = hot is not None and bool(hot.engine_url or hot.url)
    if options.rest:
        switching = (
            switch_lock.holder(paths.switch_lock) or hot_change_under_way.load(paths).rollout
        )
        if hot and answers and hot.sense == "answers" and not switching:
            ask_daily_while_idle(hot, paths, state[hot.unit])
        return errors.EXIT_DONE
    if hot is None or not answers:
        write_to_journal("no model is hot that answers here")
        return errors.EXIT_USAGE
    verdict = ask_sense_questions(hot, paths, state[hot.unit].main_pid)
    codes = {"sound": errors.EXIT_DONE, "nonsense": errors.EXIT_FAILED}
    return codes.get(verdict.state, errors.EXIT_USAGE)
