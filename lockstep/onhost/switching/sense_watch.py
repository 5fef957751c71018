"""Ask the hot model questions with one right answer, and say whether it makes sense.

usage: sense [TARGET] [--rest | --forget]

Asks TARGET, or what is hot: echo eight identifiers, count to a hundred, one tool call where the
recipe has a parser; then the first two once more at the same moment. Log-probabilities must be
finite. A target with `sense: "record"` is judged by its record only: by the log-probabilities that
it had when its answers were first accepted here. --forget removes that record, so that the next
answers are accepted. --rest is the timer's: it asks once a day, only while no request is in the
engine and nobody switches; it restarts nothing, and ends with 0 whatever it finds. `switch.sh
status` and `lockstep diff` tell it.

exit codes: 0 it makes sense, or --rest, or --forget; 1 nonsense; 2 wrong use, no model is hot, or
            nothing could be asked
"""

from __future__ import annotations

import time
from dataclasses import replace

from lockstep.onhost.core import config, errors, layout, output, program, switch_lock
from lockstep.onhost.engine import openai_api, sense, sense_record
from lockstep.onhost.systemd import units

# The timer comes each hour, and finds a busy engine at most of them.
_AGAIN_S = 20 * 3600.0


def ask(target: config.Target, paths: layout.Paths, pid: int) -> sense.Verdict:
    """Look at a target, remember it, and say it."""
    asked = target.itself
    key = openai_api.api_key(asked)
    verdict = sense.look(asked, key, sense_record.accepted(paths, target))
    note = sense_record.keep(paths, target, verdict, pid)
    tell(f"{target.name} {verdict.words}" + (f"; {note}" if note else ""))
    return verdict


def rest(target: config.Target, paths: layout.Paths, unit: units.Unit) -> None:
    """The timer's look: once a day, and only while the engine rests."""
    seen = sense_record.last(paths).get(target.name)
    if seen and seen.pid == unit.main_pid and time.time() - seen.at < _AGAIN_S:
        return
    try:
        asked = target.itself
        counted = openai_api.counters(asked, openai_api.api_key(asked))
    except openai_api.NotReady:
        return
    if counted is None or counted.outstanding:
        return
    if ask(target, paths, unit.main_pid).state != "nonsense":
        return
    # Once more, for its unit may have been stopped meanwhile, and an engine is not accused lightly.
    now = units.show([target.unit])[target.unit]
    if now.state == "hot" and now.main_pid == unit.main_pid:
        ask(target, paths, unit.main_pid)
    else:
        sense_record.unsee(paths, target.name)


def tell(line: str) -> None:
    """One line for the journal."""
    output.say(f"lockstep sense: {line}")


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Command line; see the module's docstring."""
    parser = program.parser(__doc__)
    parser.add_argument("target", nargs="?")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--rest", action="store_true")
    how.add_argument("--forget", action="store_true")
    options = parser.parse_args(argv)
    paths = paths or layout.Paths()
    host = config.load_host(paths.targets)
    named = [host.target(options.target)] if options.target else list(host.targets.values())
    if options.forget:
        for target in named:
            if sense_record.forget(paths, target.name):
                tell(f"{target.name}: its record is removed; the next answers become it")
        return errors.EXIT_DONE
    state = units.show(target.unit for target in named)
    hot = next((target for target in named if state[target.unit].state == "hot"), None)
    answers = hot is not None and bool(hot.engine_url or hot.url)
    if options.rest:
        switching = switch_lock.holder(paths.switch_lock) is not None or paths.rollout.exists()
        if hot and answers and hot.sense != "off" and not switching:
            rest(hot, paths, state[hot.unit])
        return errors.EXIT_DONE
    if hot is None or not answers:
        tell("no model is hot that answers here")
        return errors.EXIT_USAGE
    if hot.sense == "off":
        hot = replace(hot, sense="answers")
    verdict = ask(hot, paths, state[hot.unit].main_pid)
    codes = {"sound": errors.EXIT_DONE, "nonsense": errors.EXIT_FAILED}
    return codes.get(verdict.state, errors.EXIT_USAGE)
