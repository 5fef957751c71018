"""The last lines of `lockstep deploy`: what serves, or what went wrong and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from lockstep.core.terminal import clock_text
from lockstep.deploy.course import REREAD, RESTART, Course
from lockstep.deploy.events import Empty, Interrupts
from lockstep.deploy.summary import HostOutcome, failures, remarks, unreached
from lockstep.inventory.values import is_loopback

#: Parts that a host is kept from where --keep-hot holds it back.
_HELD_FROM = ("Services", "Gateway", "Switch", "Open WebUI", "Monitoring", "Verify")
#: Lines of a failed run that are shown, where it says nothing of its own.
_LAST = 8
# Headings of pyinfra's, and what it says of its own insides.
_NOISE = re.compile(
    r"-->|\s*(File \"|Traceback|Loading: |Detected changes may|Error: executed|\^+$)|\s*$"
)
# A file that differs, and after it its lines.
_DIFFERENCE = re.compile(r"\d\d:\d\d:\d\d  {4}((?:\[[^\]]+\] will | {2}).+)")
# What pyinfra says of an error of its own, after a traceback.
_OWN_ERROR = re.compile(r"--> pyinfra error(?: in \S+ line \d+)?: (.+)")
# The key of a login that is not on this machine, and the host whose it is.
_NO_KEY = re.compile(r"No such private key file: .+")
_CONNECTED = re.compile(r"Host\.connect of Host\(([^)]+)\)")
# What Python writes before an error without a number.
_NO_NUMBER = "[Errno None] "


def success(course: Course, typed: Callable[..., str], now: float) -> Iterator[str]:
    """The models that serve, how to start one, page and chat; before them what people must know.

    Args:
        course: The run.
        typed: Gives the command to type of words of `lockstep`.
        now: Seconds of the clock of `course.began`.
    """
    outcomes = [each for each in course.outcomes if each.snapshot]
    names = ", ".join(each.name for each in outcomes)
    yield from _notes(course)
    took = clock_text(now - course.began)
    what = "Done" if course.changed else "Nothing to change"
    hot = {each.name: each.snapshot["hot"] for each in outcomes}
    models = list(dict.fromkeys(name for each in outcomes for name in each.snapshot["serves"]))
    running = list(dict.fromkeys(name for each in hot.values() for name in each))
    if len(running) == 1 and all(hot.values()):
        said = f"{running[0]} is hot."
    elif running:
        said = " ".join(f"Hot on {name}: {', '.join(each)}." for name, each in hot.items() if each)
    else:
        said = "Nothing is hot."
    verb = "serves" if len(outcomes) == 1 else "serve"
    yield f"{what}, {took}. {names} {verb}: {', '.join(models)}. {said}"
    if models and not running:
        yield f"Start one:  {typed('switch', models[0])}"
    yield _addresses(outcomes, typed)


def _notes(course: Course) -> Iterator[str]:
    for text in dict.fromkeys(text for each in course.outcomes for text in each.news):
        yield f"Note: {text}"


def _addresses(outcomes: Sequence[HostOutcome], typed: Callable[..., str]) -> str:
    kinds = [name for name in ("page", "chat") if outcomes[0].snapshot[name]]
    shown = {
        name: list(dict.fromkeys(each.snapshot[name] for each in outcomes if each.snapshot[name]))
        for name in kinds
    }
    text = "   ".join(f"{name.capitalize()}: {', '.join(urls)}" for name, urls in shown.items())
    if not any(is_loopback(_host(url)) for urls in shown.values() for url in urls):
        return text
    return f"{text}   (on this machine: {typed('open')})"


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


def empty_host(event: Empty) -> Iterator[str]:
    """A host on which nothing is, and what comes there from where."""
    said = "was deployed to before, and nothing of it is there" if event.known else "is new"
    yield f"{event.host} {said}: this deploy builds it"
    yield from (f"  {line}" for line in event.lines)


def interruptions(found: Sequence[Interrupts], keep_hot: bool = False) -> Iterator[str]:
    """Sentences about what people lose by a deploy, before it touches anything.

    Args:
        found: What it would stop.
        keep_hot: Whether the hosts where it would are left as they are.
    """
    if found and keep_hot:
        for each in found:
            yield f"{each.host}: {each.model} stays hot; this host is held back"
        return
    if found:
        yield "This deploy interrupts:"
    for each in found:
        then = "it restarts" if each.again else "it is stopped, for the inventory has it no more"
        asked = f"; {each.requests} requests under way" if each.requests else ""
        yield f"  {each.host}: {each.model} is hot: {then}{asked}"


def dry_run(course: Course, log: Sequence[str] | None, keep_hot: bool = False) -> Iterator[str]:
    """The changes and interruptions of a deploy that only looks.

    Args:
        course: The run that only looked.
        log: All its lines, where the text of what differs is wanted.
        keep_hot: Whether no hot model is to be interrupted.
    """
    yield from (found[1] for line in log or () if (found := _DIFFERENCE.match(line)))
    would = dict(_to_come(course, keep_hot))
    for name, hosts in would.items():
        part, _, what = name.partition(" | ")
        yield f"would  {', '.join(hosts)}: {what or part}"
    yield from interruptions(course.interrupts, keep_hot)
    yield from _notes(course)
    if not would:
        yield f"Nothing would change on {', '.join(course.hosts)}."
    elif log is None:
        yield "The files are named in the log; --diff shows what differs in them."


def _to_come(course: Course, keep_hot: bool) -> Iterator[tuple[str, Sequence[str]]]:
    """Operation → hosts that it would change, without those that are held back before it."""
    back = {each.host for each in course.interrupts} if keep_hot else set()
    would: Mapping[str, Sequence[str]] = course.over.would if course.over else {}
    # A restart of Docker is earlier, and of other system services nothing is held back.
    at_docker = back - set(would.get(f"Services | {RESTART}", ()))
    for name, hosts in would.items():
        part, _, what = name.partition(" | ")
        held = back if part in _HELD_FROM else at_docker if what == REREAD else set()
        if left := [host for host in hosts if host not in held]:
            yield name, left


def failure(course: Course, tail: Mapping[str, Sequence[str]], command: str) -> Iterator[str]:
    """The step, the host, the last lines that matter, and the remedy.

    Args:
        course: The run.
        tail: Host → its last lines in the step, "" → those of nobody.
        command: What was typed.
    """
    outcomes = course.outcomes
    for each in outcomes:
        if each.failed_at and not each.reason and not each.held:
            each.reason = "\n".join(_last(tail.get(each.name, ())))
    yield from (*remarks(outcomes), *failures(outcomes, command))


def unexplained_end(course: Course, lines: Sequence[str]) -> Iterator[str]:
    """Why a run ended that said nothing of its end: its last lines, and the remedy."""
    if course.refused:
        yield from course.refused.splitlines()
        return
    raised = any(line.strip().startswith("Traceback") for line in lines)
    if raised and (errors := [found[1] for line in lines if (found := _OWN_ERROR.search(line))]):
        yield from (_without_key(error, lines) for error in errors)
        return
    shown = _last(lines)
    yield from shown
    yield from dict.fromkeys(filter(None, map(unreached, shown)))


def _without_key(error: str, lines: Sequence[str]) -> str:
    """An error of pyinfra's; of a key that is not there with its host and the remedy."""
    if not _NO_KEY.fullmatch(error):
        return error
    hosts = ", ".join(dict.fromkeys(_CONNECTED.findall("\n".join(lines))))
    prefix = f"{hosts}: " if hosts else ""
    return f"{prefix}{error}. Remedy: correct `ssh_key` in the inventory, or copy the key there."


def _last(lines: Sequence[str]) -> list[str]:
    found = [line.strip().replace(_NO_NUMBER, "") for line in lines if not _NOISE.match(line)]
    return found[-_LAST:]
