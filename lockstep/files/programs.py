"""The package that runs on a Spark, `lockstep/onhost`: its files there, and its imports."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from lockstep.files.managed_file import PROGRAMS, ManagedFile
from lockstep.onhost.__main__ import MODULES

_TOP = Path(__file__).resolve().parents[2]
_PACKAGE = "lockstep.onhost"
_MAIN = "lockstep/onhost/__main__.py"
# Many times as fast as a parser, whose time a deploy without changes would notice.
_IMPORT = re.compile(r"^\s*from (lockstep[\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
_NAME = re.compile(r"\w+")
_START = re.compile(rf"^ExecStart=\S+ {re.escape(PROGRAMS)} (\S+)", re.MULTILINE)


def program_files() -> tuple[ManagedFile, ...]:
    """Return every file of the package, at the path that makes it `lockstep.onhost` on a Spark."""
    return tuple(
        ManagedFile(f"{PROGRAMS}/{'__main__.py' if path == _MAIN else path}", text)
        for path, text in package_texts().items()
    )


@cache
def package_texts() -> dict[str, str]:
    """Return the text of every file of the package, by path below the import folder."""
    paths = sorted((_TOP / "lockstep/onhost").rglob("*.py"))
    return {
        str(path.relative_to(_TOP)): path.read_text(encoding="utf-8")
        for path in (_TOP / "lockstep/__init__.py", *paths)
    }


def modules_with_imports(*modules: str) -> dict[str, str]:
    """Return the text by path of modules ("switching.start_gate") and of all that they import."""
    needed_modules: set[str] = set()
    waiting = [f"{_PACKAGE}.{module}" for module in modules]
    while waiting:
        module = waiting.pop()
        path = _path(module)
        if path and path not in needed_modules:
            needed_modules.add(path)
            waiting += [module.rpartition(".")[0], *_possible_imports(package_texts()[path])]
            if "iter_modules" in package_texts()[path]:
                # The engines are found by their folder.
                waiting += [
                    adjacent_file.removesuffix(".py").replace("/", ".")
                    for adjacent_file in _adjacent_files(path)
                ]
    return {path: package_texts()[path] for path in sorted(needed_modules)}


def modules_run_by_unit(unit: str) -> list[str]:
    """Return the paths of our modules that a unit's service runs; [] for another's service."""
    start = _START.search(unit)
    return (
        [f"{PROGRAMS}/{path}" for path in modules_with_imports(MODULES[start[1]])] if start else []
    )


def _path(module: str) -> str | None:
    stem = module.replace(".", "/")
    return next(
        (path for path in (f"{stem}.py", f"{stem}/__init__.py") if path in package_texts()), None
    )


def _adjacent_files(path: str) -> list[str]:
    folder = path.rpartition("/")[0]
    return [
        adjacent_file
        for adjacent_file in package_texts()
        if adjacent_file.rpartition("/")[0] == folder != adjacent_file
    ]


@cache
def _possible_imports(text: str) -> list[str]:
    """Return the names of ours that one file may import: modules, and the names in them."""
    return [
        name
        for module, names in _IMPORT.findall(text)
        for name in (
            module,
            *(f"{module}.{imported_name}" for imported_name in _NAME.findall(names)),
        )
    ]
