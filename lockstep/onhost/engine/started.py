"""How systemd starts a unit of somebody else's: its command line and variables, as the program
gets them.

`systemctl show` has a start without its quotes, and `systemctl cat` one without its specifiers and
variables filled in: both are needed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

# What systemd reads before the program.
_PREFIXES = "-@:+!|"
_SHOWN_FILE = re.compile(r"^EnvironmentFiles=(.+) \(ignore_errors=(?:yes|no)\)$", re.MULTILINE)
_VARIABLE = re.compile(r"\$\{(\w+)\}|\$(\w+)")


def words(text: str) -> list[str]:
    """Words of a command line; where its quotes do not match, those between blanks."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def variables(shown: str) -> dict[str, str]:
    """What a unit gives its program, of `systemctl show`: `Environment=`, then its files'."""
    given = re.findall(r"^Environment=(.*)$", shown, re.MULTILINE)
    found = dict(_pairs(word for line in given for word in words(line)))
    for pattern in _SHOWN_FILE.findall(shown):
        for path in sorted(Path("/").glob(pattern.lstrip("/"))):
            try:
                text = path.read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            found |= in_file(text)
    return found


def in_file(text: str) -> dict[str, str]:
    """Variables of a file as systemd.exec(5) has it: a pair in a line, quotes, comments."""
    joined = re.sub(r"\\\n", "", text)
    lines = (line.strip() for line in joined.splitlines())
    pairs = _pairs(line for line in lines if line and line[0] not in "#;")
    return {
        name.strip(): "".join(words(value)) if value.lstrip()[:1] in ("'", '"') else value.strip()
        for name, value in pairs
    }


def argv(
    text: str, unit: str, known: Mapping[str, str], secret: Callable[[str], bool]
) -> list[str]:
    """The command line of the last ExecStart= of a unit with its drop-ins.

    `text` is what `systemctl cat` says, and `known` are the unit's variables. The name of one that
    is `secret` stays in place of its value.
    """
    joined = re.sub(r"\\\n\s*", " ", text)
    found = re.findall(r"^ExecStart=(.+)$", joined, re.MULTILINE)
    start = words(found[-1].strip().lstrip(_PREFIXES)) if found else []
    filled = [_specified(word, unit) for word in start]
    return [each for word in filled for each in _expanded(word, known, secret)]


def _pairs(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        name, mark, value = line.partition("=")
        if mark:
            yield name, value


def _specified(word: str, unit: str) -> str:
    """With systemd.unit(5)'s specifiers for a unit's name filled in."""
    name = unit.removesuffix(".service")
    prefix, _, instance = name.partition("@")
    plain = re.sub(
        r"\\x([0-9a-f]{2})", lambda found: chr(int(found[1], 16)), instance.replace("-", "/")
    )
    values = {"i": instance, "I": plain, "n": unit, "N": name, "p": prefix, "%": "%"}
    return re.sub(r"%([iInNp%])", lambda found: values[found[1]], word)


def _expanded(word: str, known: Mapping[str, str], secret: Callable[[str], bool]) -> list[str]:
    """With its variables: "$NAME" alone becomes several words, "${NAME}" is a part of one."""
    alone = re.fullmatch(r"\$(\w+)", word)
    if alone and not secret(alone[1]):
        return words(known.get(alone[1], ""))

    def value(found: re.Match[str]) -> str:
        name = found[1]
        return found[0] if name is None or secret(name) else known.get(name, "")

    return [_VARIABLE.sub(value, word).replace("$$", "$")]
