"""The package that runs on a Spark, `lockstep/onhost`: its files there, and what imports what."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from lockstep.files.managed_file import PROGRAMS, ManagedFile
from lockstep.onhost.__main__ import MODULES

_TOP = Path(__file__).resolve().parents[2]
_PACKAGE = "lockstep.onhost"
_MAIN = "lockstep/onhost/__main__.py"
# Many times as fast as a parser, and a deploy that changes nothing would notice that one.
_IMPORT = re.compile(r"^\s*from (lockstep[\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
_NAME = re.compile(r"\w+")
_START = re.compile(rf"^ExecStart=\S+ {re.escape(PROGRAMS)} (\S+)", re.MULTILINE)


def programs() -> tuple[ManagedFile, ...]:
    """Every file of the package, where Python finds it as `lockstep.onhost` on a Spark."""
    return tuple(
        ManagedFile(f"{PROGRAMS}/{'__main__.py' if path == _MAIN else path}", text)
        for path, text in package().items()
    )


@cache
def package() -> dict[str, str]:
    """Path below the folder that Python imports from → text, of every file of the package."""
    found = sorted((_TOP / "lockstep/onhost").rglob("*.py"))
    return {
        str(path.relative_to(_TOP)): path.read_text(encoding="utf-8")
        for path in (_TOP / "lockstep/__init__.py", *found)
    }


def closure(*modules: str) -> dict[str, str]:
    """Modules of the package ("switching.gate") with all that they import: path → text."""
    found: set[str] = set()
    waiting = [f"{_PACKAGE}.{module}" for module in modules]
    while waiting:
        module = waiting.pop()
        path = _path(module)
        if path and path not in found:
            found.add(path)
            waiting += [module.rpartition(".")[0], *_imported(package()[path])]
            if "iter_modules" in package()[path]:
                # The engines are found by their folder.
                waiting += [other.removesuffix(".py").replace("/", ".") for other in _beside(path)]
    return {path: package()[path] for path in sorted(found)}


def run_by(unit: str) -> list[str]:
    """Paths of our modules that the service of a unit's text runs; [] where it runs another's."""
    start = _START.search(unit)
    return [f"{PROGRAMS}/{path}" for path in closure(MODULES[start[1]])] if start else []


def _path(module: str) -> str | None:
    stem = module.replace(".", "/")
    return next((path for path in (f"{stem}.py", f"{stem}/__init__.py") if path in package()), None)


def _beside(path: str) -> list[str]:
    folder = path.rpartition("/")[0]
    return [other for other in package() if other.rpartition("/")[0] == folder != other]


@cache
def _imported(text: str) -> list[str]:
    """What one file may import of ours: modules, and the names in them."""
    return [
        name
        for module, names in _IMPORT.findall(text)
        for name in (module, *(f"{module}.{each}" for each in _NAME.findall(names)))
    ]
