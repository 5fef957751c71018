"""docs/state.md names every path that the code has, and no other one; its modules are there."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

from lockstep.inventory.settings import HostPaths
from lockstep.onhost.core import layout
from lockstep.onhost.records import ownership
from lockstep.resources.files import EVER_OURS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/state.md").read_text(encoding="utf-8")
SOURCE = "".join(
    path.read_text(encoding="utf-8")
    for folder in ("lockstep", "tasks", "lockstep/templates")
    for path in sorted((ROOT / folder).rglob("*.[pj]*"))
    if path.suffix in (".py", ".j2")
)
HERE = layout.Paths()
PLACES = {name for name, place in vars(layout.Paths).items() if hasattr(place, "_path")}
BELOW = re.compile(r'paths\.(\w+)((?: / f?"[^"]+")+)')


def code_paths() -> set[str]:
    """The paths that the code writes: places, names below them, managed files, folders of units."""
    written_paths = {str(getattr(HERE, name)) for name in PLACES}
    for place, names in BELOW.findall(SOURCE):
        below = "/".join(re.findall(r'"([^"]+)"', names))
        written_paths.add(str(getattr(HERE, place) / re.sub(r"{[^}]*}", "*", below)))
    written_paths |= {
        *EVER_OURS,
        *ownership.HOMES,
        *ownership.MADE_FOR_UNITS,
        ownership.ADOPTED_FOLDER,
    }
    golden = ROOT / "tests/render/golden"
    files = {
        "/" + str(file.relative_to(host))
        for host in golden.iterdir()
        for file in host.rglob("*")
        if file.is_file()
    }
    folders = {HostPaths().hub_cache, HostPaths().engines, ownership.UV}
    # What systemd keeps as private has a link without that word; modules and remains of a
    # write that was cut off have no names here.
    own_paths = {
        path
        for path in written_paths
        if "lockstep" in path and not re.search(r"private/|\*\*", path)
    }
    return {path.rstrip("/") for path in own_paths | files | folders}


def page_paths() -> set[str]:
    """The paths that the page names, with * for a name in capitals."""
    return {
        re.sub(r"\b[A-Z]{2,}\b", "*", path.rstrip("/")) for path in re.findall(r"`(/[^`]+)`", PAGE)
    }


def is_named(path: str, known_paths: set[str]) -> bool:
    """Tell whether another path is the same one, by its pattern or as a file in that folder."""
    return any(
        fnmatchcase(path, known_path)
        or fnmatchcase(known_path, path)
        or known_path.startswith(f"{path}/")
        for known_path in known_paths
    )


def test_every_path_of_the_code_is_on_the_page() -> None:
    on_page = page_paths()
    assert sorted(path for path in code_paths() if not is_named(path, on_page)) == []


def test_every_path_on_the_page_is_in_the_code() -> None:
    in_code = code_paths() | {"/dev/null"}
    assert [
        path
        for path in sorted(page_paths())
        if not is_named(path, in_code) and f'{path.rpartition("/")[2]}"' not in SOURCE
    ] == []


def test_every_module_on_the_page_is_there() -> None:
    modules = re.findall(r"`(?!lockstep/)([a-z]+/[a-z_]+)`", PAGE)
    rooms = (ROOT / "lockstep/onhost", ROOT / "lockstep")
    missing = [
        name for name in modules if not any((room / f"{name}.py").is_file() for room in rooms)
    ]
    assert len(modules) > 60 and missing == []
