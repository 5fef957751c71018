"""The last lines of `lockstep deploy`: the models that serve, or the failure and its remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from lockstep.core.terminal import clock_text
from lockstep.deploy.course import REREAD, RESTART, Course
from lockstep.deploy.events import Empty, Interrupts
from lockstep.deploy.summary import HostOutcome, failures, remarks, unreached_remedy
from lockstep.inventory.values import is_loopback
from lockstep.onhost.records.rollback_journal import STAYING

#: Parts of `deploy.py` from which --keep-hot holds a host back.
_HELD_FROM = ("Services", "Gateway", "Switch", "Open WebUI", "Monitoring", "Verify")
_SECRETS, _CONTENT = "secrets", "images, engines and weights"
_SETTINGS = "kernel settings, firewall rules and addresses"
#: Operations whose changes no failure brings back → what they change, as the journal calls it. Of a
#: name with a colon, the part before it.
STAYING_BY_OPERATION = {
    "Create the service accounts and the operators' group": "accounts",
    "Write folders, programs and settings": "folders",
    "Write secrets from the operator's machine": _SECRETS,
    "Install packages": "packages",
    "Turn on services of the system that are off": "services of the system",
    REREAD: "services of the system",
    "Apply kernel settings": _SETTINGS,
    "Give the fast link its addresses": _SETTINGS,
    "Bring the rules into force": _SETTINGS,
    "Install our own tools": "packages",
    "Make keys for several hosts once": _SECRETS,
    "Take keys over from the host that made them": _SECRETS,
    "Take over what other hosts know of persons' keys": _SECRETS,
    "Pull images by digest": _CONTENT,
    "Fetch and verify weights": _CONTENT,
    "Build the engine's environment": _CONTENT,
    "Make the API key of open models once": _SECRETS,
    "Remove containers that the inventory takes over": "adopted containers",
    "Make Open WebUI's keys once": _SECRETS,
    "Run Open WebUI": "volumes",
    "Purge packages that monitoring brought": "packages",
}
#: Lines to show of a failed run that gives no reason of its own.
_LAST = 8
# Headings of pyinfra's, and messages about its internals.
_NOISE = re.compile(
    r"-->|\s*(File \"|Traceback|Loading: |Detected changes may|Error: executed|\^+$)|\s*$"
)
# A differing file, and after it the lines of the difference.
_DIFFERENCE = re.compile(r"\d\d:\d\d:\d\d  {4}((?:\[[^\]]+\] will | {2}).+)")
# pyinfra's message for an error of its own, after a traceback.
_OWN_ERROR = re.compile(r"--> pyinfra error(?: in \S+ line \d+)?: (.+)")
# The missing key of a login, and the host that needs it.
_NO_KEY = re.compile(r"No such private key file: .+")
_CONNECTED = re.compile(r"Host\.connect of Host\(([^)]+)\)")
# Python's prefix of an error without a number.
_NO_NUMBER = "[Errno None] "


def success(course: Course, command_text: Callable[..., str], now: float) -> Iterator[str]:
    """Yield notes for people, the models that serve, the command to start one, page and chat.

    Args:
        course: The run.
        command_text: Returns the command to type for given words of `lockstep`.
        now: Seconds of the clock of `course.began`.
    """
    outcomes = [outcome for outcome in course.outcomes if outcome.snapshot]
    names = ", ".join(outcome.name for outcome in outcomes)
    yield from _notes(course)
    took = clock_text(now - course.began)
    headline = "Done" if course.has_changed else "Nothing to change"
    hot = {outcome.name: outcome.snapshot["hot"] for outcome in outcomes}
    models = list(
        dict.fromkeys(name for outcome in outcomes for name in outcome.snapshot["serves"])
    )
    running = list(dict.fromkeys(name for outcome in hot.values() for name in outcome))
    if len(running) == 1 and all(hot.values()):
        sentence = f"{running[0]} is hot."
    elif running:
        sentence = " ".join(
            f"Hot on {name}: {', '.join(outcome)}." for name, outcome in hot.items() if outcome
        )
    else:
        sentence = "Nothing is hot."
    verb = "serves" if len(outcomes) == 1 else "serve"
    yield f"{headline}, {took}. {names} {verb}: {', '.join(models)}. {sentence}"
    if models and not running:
        yield f"Start one:  {command_text('switch', models[0])}"
    yield _addresses(outcomes, command_text)


def _notes(course: Course) -> Iterator[str]:
    for text in dict.fromkeys(text for outcome in course.outcomes for text in outcome.news):
        yield f"Note: {text}"


def _addresses(outcomes: Sequence[HostOutcome], command_text: Callable[..., str]) -> str:
    kinds = [name for name in ("page", "chat") if outcomes[0].snapshot[name]]
    addresses = {
        name: list(
            dict.fromkeys(outcome.snapshot[name] for outcome in outcomes if outcome.snapshot[name])
        )
        for name in kinds
    }
    text = "   ".join(f"{name.capitalize()}: {', '.join(urls)}" for name, urls in addresses.items())
    if not any(is_loopback(_host(url)) for urls in addresses.values() for url in urls):
        return text
    return f"{text}   (on this machine: {command_text('open')})"


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


def empty_host(event: Empty) -> Iterator[str]:
    """Yield the description of an empty host: what the deploy brings there, and from where."""
    sentence = (
        "was deployed to before, and nothing of it is there" if event.was_deployed else "is new"
    )
    yield f"{event.host} {sentence}: this deploy builds it"
    yield from (f"  {line}" for line in event.lines)


def interruptions(hot_models: Sequence[Interrupts], keep_hot: bool = False) -> Iterator[str]:
    """Yield sentences about the interruptions of a deploy, before it touches anything.

    Args:
        hot_models: The hot models that it would stop.
        keep_hot: True if the hosts of these models are left as they are.
    """
    if hot_models and keep_hot:
        for hot_model in hot_models:
            yield f"{hot_model.host}: {hot_model.model} stays hot; this host is held back"
        return
    if hot_models:
        yield "This deploy interrupts:"
    for hot_model in hot_models:
        then = (
            "it restarts" if hot_model.again else "it is stopped, for the inventory has it no more"
        )
        requests_text = f"; {hot_model.requests} requests under way" if hot_model.requests else ""
        yield f"  {hot_model.host}: {hot_model.model} is hot: {then}{requests_text}"


def dry_run(course: Course, log: Sequence[str] | None, keep_hot: bool = False) -> Iterator[str]:
    """Yield the changes and interruptions of a deploy that only looks.

    Args:
        course: The run that only looked.
        log: All its lines, to show the text of the differences; None: do not show it.
        keep_hot: True if no hot model is to be interrupted.
    """
    yield from (match[1] for line in log or () if (match := _DIFFERENCE.match(line)))
    would = dict(_to_come(course, keep_hot))
    for name, hosts in would.items():
        part, _, title = name.partition(" | ")
        yield f"would  {', '.join(hosts)}: {title or part}"
    yield from interruptions(course.interrupts, keep_hot)
    yield from _notes(course)
    titles = [name.partition(" | ")[2].partition(":")[0] for name in would]
    for kind in dict.fromkeys(filter(None, map(STAYING_BY_OPERATION.get, titles))):
        yield f"After a failure, {kind} {STAYING[kind]}."
    if not would:
        yield f"Nothing would change on {', '.join(course.hosts)}."
    elif log is None:
        yield "The files are named in the log; --diff shows what differs in them."


def _to_come(course: Course, keep_hot: bool) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield each operation with the hosts that it would change, except hosts held back earlier."""
    back = {interruption.host for interruption in course.interrupts} if keep_hot else set()
    would: Mapping[str, Sequence[str]] = course.over.would if course.over else {}
    # Hosts that only a restart of Docker would interrupt are held back at that earlier step.
    # Restarts of other system services hold no host back.
    at_docker = back - set(would.get(f"Services | {RESTART}", ()))
    for name, hosts in would.items():
        part, _, title = name.partition(" | ")
        held_hosts = back if part in _HELD_FROM else at_docker if title == REREAD else set()
        if remaining_hosts := [host for host in hosts if host not in held_hosts]:
            yield name, remaining_hosts


def failure(course: Course, tail: Mapping[str, Sequence[str]], command: str) -> Iterator[str]:
    """Yield the failed step, the host, the last lines that matter, and the remedy.

    Args:
        course: The run.
        tail: The last lines in the step by host; "" for lines of no host.
        command: The command that the user typed.
    """
    outcomes = course.outcomes
    for outcome in outcomes:
        if outcome.failed_at and not outcome.reason and not outcome.hold_reason:
            outcome.reason = "\n".join(_last(tail.get(outcome.name, ())))
    yield from (*remarks(outcomes), *failures(outcomes, command))


def unexplained_end(course: Course, lines: Sequence[str]) -> Iterator[str]:
    """Yield the last lines and the remedy of a run that ended without saying why."""
    if course.refusal:
        yield from course.refusal.splitlines()
        return
    has_traceback = any(line.strip().startswith("Traceback") for line in lines)
    if has_traceback and (
        errors := [match[1] for line in lines if (match := _OWN_ERROR.search(line))]
    ):
        yield from (_without_key(error, lines) for error in errors)
        return
    last_lines = _last(lines)
    yield from last_lines
    yield from dict.fromkeys(filter(None, map(unreached_remedy, last_lines)))


def _without_key(error: str, lines: Sequence[str]) -> str:
    """Return an error of pyinfra's; for a missing key with the host and the remedy."""
    if not _NO_KEY.fullmatch(error):
        return error
    hosts = ", ".join(dict.fromkeys(_CONNECTED.findall("\n".join(lines))))
    prefix = f"{hosts}: " if hosts else ""
    return f"{prefix}{error}. Remedy: correct `ssh_key` in the inventory, or copy the key there."


def _last(lines: Sequence[str]) -> list[str]:
    shown_lines = [line.strip().replace(_NO_NUMBER, "") for line in lines if not _NOISE.match(line)]
    return shown_lines[-_LAST:]
