"""A unit's programs see everything that they need of the host, whatever the unit hides."""

import re
from pathlib import Path

import pair
import pytest
from example import REPOSITORY
from test_units_by_systemd import directives as words

from lockstep.files.managed_file import PROGRAMS, SERVED_WEIGHTS
from lockstep.onhost.__main__ import MODULES
from lockstep.onhost.core import layout

#: In the order that systemd reads them; "+" lifts User=, capabilities and the sandbox.
_LINE = re.compile(r"^(Exec(?:Start|Stop|Reload)(?:Pre|Post)?)=([-@:+!|]*)(.*)$", re.MULTILINE)
_KEPT = re.compile(r"[pP]aths(?:\(\))?\)?\.([a-z_]+)")
#: Host and unit → its text.
UNITS = {
    f"{host}: {Path(path).name}": file.text
    for host, files in {**pair.FILES, "rank 1": pair.rank_files(1)}.items()
    for path, file in files.items()
    if path.endswith(".service")
}


def is_hidden(unit: str, path: str, prefix: str) -> bool:
    """Tell whether systemd hides a path of the host from a program of the unit.

    TemporaryFileSystem= and Bind…Paths= hold for lines with "+" as well, contrary to
    systemd.service(5): apply_mount_namespace() of systemd applies them in any case, before 244 and
    after 257, and a run with 257 confirmed it. InaccessiblePaths= does not.
    """
    covers = [word.partition(":")[0] for word in words(unit, "TemporaryFileSystem")]
    shown_paths = [
        word.lstrip("-").split(":")[-1] for word in words(unit, "Bind(?:ReadOnly)?Paths")
    ]
    shut_paths = (
        [] if "+" in prefix else [word.lstrip("-") for word in words(unit, "InaccessiblePaths")]
    )
    is_covered = _within(path, covers) and not _within(path, shown_paths)
    return is_covered or _within(path, shut_paths)


def _within(path: str, folders: list[str]) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in folders)


def needed_paths(program: str) -> set[str]:
    """The paths that a host's program uses, by the names of `layout.Paths` in its own module."""
    path = REPOSITORY / "lockstep/onhost" / MODULES[program].replace(".", "/")
    text = path.with_suffix(".py").read_text(encoding="utf-8")
    names = {name for name in _KEPT.findall(text) if hasattr(layout.Paths(), name)}
    return {str(getattr(layout.Paths(), name)).replace("/var/run/", "/run/") for name in names}


def programs(unit: str) -> list[tuple[str, str, str]]:
    """Directive, prefix and word of each program of ours that the unit starts."""
    return [
        (directive, prefix, name)
        for directive, prefix, command in _LINE.findall(unit)
        for name in re.findall(rf"{PROGRAMS} ([a-z-]+)", command)
    ]


@pytest.mark.parametrize("name", UNITS)
def test_every_program_sees_what_it_reads(name: str) -> None:
    unit = UNITS[name]
    blind = [
        f"{directive}={prefix}… {program}: {path}"
        for directive, prefix, program in programs(unit)
        # Gate and guard find a model's files by `Paths.weights_list`, in a module of their own.
        for path in {*needed_paths(program), *[SERVED_WEIGHTS] * (program in ("gate", "ready"))}
        if is_hidden(unit, path, prefix)
    ]
    assert blind == []


def test_the_programs_that_must_see_something_are_among_them() -> None:
    """Else a name that changed would make the test above pass by looking at nothing."""
    assert {program for text in UNITS.values() for *_, program in programs(text)} >= {
        *("gate", "ready", "cluster", "stop-container"),
        *("cluster-agent", "wedge", "firewall"),
    }
    assert {"/etc/lockstep/models.json", "/run/docker.sock", "/run/lockstep"} < needed_paths("gate")


@pytest.mark.parametrize("name", [name for name in UNITS if "/venv/bin/" in UNITS[name]])
def test_an_engine_in_the_venv_sees_nothing_of_the_deploy(name: str) -> None:
    unit = UNITS[name]
    paths = layout.Paths()
    for path in (paths.secrets, paths.run / "peers", paths.run, paths.docker_socket):
        assert is_hidden(unit, str(path).replace("/var/run/", "/run/"), ""), path
    # With "-" an engine that starts before the folder is there would see it come.
    assert "/run/lockstep" in words(unit, "InaccessiblePaths")


def test_a_program_of_root_has_nothing_of_an_engines_environment() -> None:
    """A unit's PATH begins with the environment of the engine, whose owner is not root."""
    texts = [text for text in UNITS.values() if re.search("(?m)^Environment=.?PATH=", text)]
    commands = [
        command
        for text in texts
        for directive, prefix, command in _LINE.findall(text)
        if "+" in prefix and directive in ("ExecStartPre", "ExecStopPost")
    ]
    assert commands
    for command in commands:
        assert command.startswith(
            ("/usr/bin/env --ignore-environment ", "/usr/bin/nvidia-modprobe -c ")
        ), command
