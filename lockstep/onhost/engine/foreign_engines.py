"""Engines that somebody else starts on this host, as `lockstep adopt` shows them.

This module is sent to a host with the words that start each engine. It answers with every unit and
container that starts one. Possible secrets do not leave the host: if a variable or a flag is named
like a secret, only its name is reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from lockstep.onhost.core import layout
from lockstep.onhost.docker import docker_api
from lockstep.onhost.engine import foreign_unit_command_line
from lockstep.onhost.records import ownership
from lockstep.onhost.systemd import units

# Matches neither --max-num-batched-tokens nor --tokenizer.
_SECRET = re.compile(r"key|token(?!s\b|iz)|secret|passw|credential", re.IGNORECASE)
_LOGIN = re.compile(r"://[^/\s]*@")
# Tokens of the hub and keys of OpenAI's form, whatever the variable is called.
_KEY = re.compile(r"\b(?:hf_|sk-)\w{16}")
_SHELLS = ("sh", "bash", "dash")
#: Engine → each command that starts it, as words.
Ways = Mapping[str, Sequence[Sequence[str]]]
_PROPERTIES = ("ActiveState", "Environment", "EnvironmentFiles", "ExecStart")


@dataclass(frozen=True)
class ForeignEngine:
    """One engine.

    Attributes:
        name: Its unit or container.
        kind: "unit" or "container".
        engine: Its name in recipes.
        argv: Its command line; begins with the first command that starts the engine.
        environment: Variables of the engine, without secrets.
        withheld: Names of variables and flags that may hold secrets.
        image: Reference of a container's image; "" for a unit.
        mounts: Folder in the container → folder of the host that is mounted there.
        running: Whether it runs now.
    """

    name: str
    kind: str
    engine: str
    argv: Sequence[str]
    environment: Mapping[str, str]
    withheld: tuple[str, ...]
    image: str
    running: bool
    mounts: Mapping[str, str] = field(default_factory=dict)


def answer_request(ways_by_engine: dict[str, list[list[str]]]) -> list[dict[str, Any]]:
    """Return every foreign engine, given the commands that start each engine."""
    paths = layout.Paths()
    foreign_engines = list(_units(ways_by_engine))
    if paths.docker_socket.exists():
        foreign_engines += _containers(docker_api.Docker(paths.docker_socket), ways_by_engine)
    return [asdict(engine) for engine in foreign_engines]


def _units(ways_by_engine: Ways) -> Iterator[ForeignEngine]:
    for facts in units.properties(units.installed_services(), *_PROPERTIES).values():
        starts = (" ".join(way) for ways in ways_by_engine.values() for way in ways)
        if not any(words in facts.get("ExecStart", "") for words in starts):
            continue
        text = units.file_text(facts["Id"])
        if ownership.MARK in text:
            continue
        variables = foreign_unit_command_line.variables(facts)
        secret_names = {key for key, value in variables.items() if _is_perhaps_secret(key, value)}
        argv = foreign_unit_command_line.argv(
            text, facts["Id"], variables, secret_names.__contains__
        )
        running = facts.get("ActiveState") == "active"
        yield from _engine(
            ways_by_engine, ForeignEngine(facts["Id"], "unit", "", argv, variables, (), "", running)
        )


def _containers(docker: docker_api.Docker, ways_by_engine: Ways) -> Iterator[ForeignEngine]:
    for entry in docker.request_json("GET", "/containers/json", {"all": "1"}):
        if docker_api.is_ours(entry.get("Labels")):
            continue
        container = docker.request_json("GET", f"/containers/{entry['Id']}/json")
        config = container["Config"]
        argv = [*(config.get("Entrypoint") or ()), *(config.get("Cmd") or ())]
        variables = dict(x.partition("=")[::2] for x in config.get("Env") or ())
        with suppress(docker_api.DockerError):
            layers = docker.request_json("GET", f"/images/{container['Image']}/json")
            own = set(layers["Config"].get("Env") or ())
            variables = {k: v for k, v in variables.items() if f"{k}={v}" not in own}
        name, running = container["Name"].lstrip("/"), container["State"]["Running"]
        mounts = {
            entry["Destination"]: entry["Source"]
            for entry in container.get("Mounts") or ()
            if entry["Type"] == "bind"
        }
        image = config["Image"]
        yield from _engine(
            ways_by_engine,
            ForeignEngine(name, "container", "", argv, variables, (), image, running, mounts),
        )


def _engine(ways_by_engine: Ways, candidate: ForeignEngine) -> Iterator[ForeignEngine]:
    """Yield the candidate without its secrets if its command line starts an engine.

    A command line through a shell counts, too.
    """
    argv = candidate.argv
    if len(argv) > 2 and PurePosixPath(argv[0]).name in _SHELLS and argv[1].endswith("c"):
        argv = foreign_unit_command_line.split_words(argv[2].rpartition("exec ")[2])
    for engine, ways in ways_by_engine.items():
        for way in ways:
            at = engine_start_index(argv, way)
            if at is None or (candidate.kind == "unit" and _is_container_command(argv[:at])):
                continue
            words, flags = without_secrets(argv[at + len(way) :])
            variables = candidate.environment
            plain_variables = {
                key: value for key, value in variables.items() if not _is_perhaps_secret(key, value)
            }
            yield replace(
                candidate,
                engine=engine,
                argv=(*ways[0], *words),
                environment=plain_variables,
                withheld=(*(key for key in variables if key not in plain_variables), *flags),
            )
            return


def engine_start_index(argv: Sequence[str], way: Sequence[str]) -> int | None:
    """Return the index at which an engine's words begin, whatever the path of its program."""
    names = [PurePosixPath(word).name if "/" in word else word for word in argv]
    places = (at for at in range(len(names)) if names[at : at + len(way)] == list(way))
    return next(places, None)


def _is_container_command(words: Sequence[str]) -> bool:
    return any(PurePosixPath(word).name in ("docker", "podman") for word in words)


def without_secrets(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return a command line without flags that may hold a secret, and the names of those flags."""
    kept_words: list[str] = []
    withheld: list[str] = []
    skips = False
    for word in argv:
        if word.startswith("-"):
            flag = word.partition("=")[0]
            skips = _is_perhaps_secret(flag, word)
            withheld += [flag] if skips else []
        if not skips:
            kept_words.append(word)
    return kept_words, withheld


def _is_perhaps_secret(name: str, value: str) -> bool:
    """Tell whether a variable or a flag may hold a secret."""
    return bool(_SECRET.search(name) or _LOGIN.search(value) or _KEY.search(value))
