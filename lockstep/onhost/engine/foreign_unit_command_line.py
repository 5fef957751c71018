"""The command line and variables of a foreign unit, as systemd gives them to its program.

`systemctl show` prints a start without its quotes. `systemctl cat` prints it without its specifiers
and variables filled in. So both are needed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from lockstep.onhost.systemd import units

# Prefixes of the program's path that systemd itself reads.
_PREFIXES = "-@:+!|"
_VARIABLE = re.compile(r"\$\{(\w+)\}|\$(\w+)")


def split_words(text: str) -> list[str]:
    """Split a command line into words; at the blanks if its quotes do not match."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def variables(state: Mapping[str, str]) -> dict[str, str]:
    """Return a unit's variables from its properties: `Environment=`, then those of its files."""
    values = dict(_pairs(split_words(state.get("Environment", ""))))
    for pattern in units.environment_files(state):
        for path in sorted(Path("/").glob(pattern.lstrip("/"))):
            try:
                text = path.read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            values |= variables_in_file_text(text)
    return values


def variables_in_file_text(text: str) -> dict[str, str]:
    """Return the variables of a file by systemd.exec(5): a pair a line, quotes, comments."""
    joined_text = re.sub(r"\\\n", "", text)
    lines = (line.strip() for line in joined_text.splitlines())
    pairs = _pairs(line for line in lines if line and line[0] not in "#;")
    return {
        name.strip(): "".join(split_words(value))
        if value.lstrip()[:1] in ("'", '"')
        else value.strip()
        for name, value in pairs
    }


def argv(
    text: str, unit: str, known_variables: Mapping[str, str], secret: Callable[[str], bool]
) -> list[str]:
    """Return the command line of the last ExecStart= of a unit with its drop-ins.

    `text` is the output of `systemctl cat`, and `known_variables` are the unit's variables. A
    variable that is `secret` stays as its name instead of its value.
    """
    joined_text = re.sub(r"\\\n\s*", " ", text)
    start_lines = re.findall(r"^ExecStart=(.+)$", joined_text, re.MULTILINE)
    start = split_words(start_lines[-1].strip().lstrip(_PREFIXES)) if start_lines else []
    filled_words = [_fill_specifiers(word, unit) for word in start]
    return [
        expanded_word
        for word in filled_words
        for expanded_word in _expand_variables(word, known_variables, secret)
    ]


def _pairs(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        name, mark, value = line.partition("=")
        if mark:
            yield name, value


def _fill_specifiers(word: str, unit: str) -> str:
    """Fill in systemd.unit(5)'s specifiers for a unit's name."""
    name = unit.removesuffix(".service")
    prefix, _, instance = name.partition("@")
    plain = re.sub(
        r"\\x([0-9a-f]{2})", lambda match: chr(int(match[1], 16)), instance.replace("-", "/")
    )
    values = {"i": instance, "I": plain, "n": unit, "N": name, "p": prefix, "%": "%"}
    return re.sub(r"%([iInNp%])", lambda match: values[match[1]], word)


def _expand_variables(
    word: str, known_variables: Mapping[str, str], secret: Callable[[str], bool]
) -> list[str]:
    """Fill in variables: "$NAME" alone becomes several words, "${NAME}" is a part of one."""
    alone = re.fullmatch(r"\$(\w+)", word)
    if alone and not secret(alone[1]):
        return split_words(known_variables.get(alone[1], ""))

    def value(match: re.Match[str]) -> str:
        name = match[1]
        return match[0] if name is None or secret(name) else known_variables.get(name, "")

    return [_VARIABLE.sub(value, word).replace("$$", "$")]
