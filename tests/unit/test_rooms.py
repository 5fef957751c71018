"""The rule of imports between rooms: the folders of `lockstep` and of `lab` (docs/rooms.md)."""

import ast
import os
from collections import defaultdict
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import lab
import lockstep

ROOT = Path(lockstep.__file__).parent
LAB = Path(lab.__file__).parent
# The link in the package is followed by name only.
TASKS = ROOT / "tasks"
TESTS = Path(__file__).parents[1]
#: Files in a folder of code.
MOST = 22


def modules(root: Path = ROOT) -> dict[str, Path]:
    """Dotted name → file, of every module below a package's folder."""
    return {
        ".".join(path.relative_to(root.parent).with_suffix("").parts).removesuffix(
            ".__init__"
        ): path
        for path in root.rglob("*.py")
    }


@cache
def _imports(path: Path) -> list[ast.Import | ast.ImportFrom]:
    tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [node for node in tree if isinstance(node, ast.Import | ast.ImportFrom)]


def imports(path: Path, known_modules: dict[str, Path]) -> set[str]:
    """The modules of ours that one file imports, also where it does so late or for types only."""
    imported_modules = set()
    for node in _imports(path):
        if isinstance(node, ast.Import):
            imported_modules |= {alias.name for alias in node.names}
        elif node.module and not node.level:
            imported_modules |= {
                full if (full := f"{node.module}.{alias.name}") in known_modules else node.module
                for alias in node.names
            }
    return imported_modules & set(known_modules)


def edges(root: Path = ROOT) -> dict[str, set[str]]:
    """Room, a folder below `root` → the rooms whose modules it imports."""
    package = "lockstep." if root == TASKS else ""
    known_modules = {package + module: path for module, path in modules(root).items()}
    rooms = {module: str(path.parent.relative_to(root)) for module, path in known_modules.items()}
    imports_by_room = defaultdict(set)
    for module, path in known_modules.items():
        imports_by_room[rooms[module]] |= {
            rooms[imported_module] for imported_module in imports(path, known_modules)
        } - {rooms[module]}
    return imports_by_room


@pytest.mark.parametrize("root", [ROOT, LAB, TASKS], ids=lambda root: root.name)
def test_arrows_between_rooms_point_one_way(root: Path) -> None:
    try:
        TopologicalSorter(edges(root)).prepare()
    except CycleError as fault:
        raise AssertionError(f"rooms import each other: {' -> '.join(fault.args[1])}") from None


def test_tasks_are_imported_by_the_name_that_an_installation_has() -> None:
    repository, wrong = ROOT.parent, []
    for path in (*(repository / "tasks").rglob("*.py"), *TESTS.rglob("*.py")):
        for node in _imports(path):
            names = [alias.name for alias in node.names]
            module_names = names if isinstance(node, ast.Import) else [node.module or ""]
            wrong += [path for name in module_names if name.partition(".")[0] == "tasks"]
    assert wrong == []


def test_what_runs_on_a_host_needs_nothing_else_of_lockstep() -> None:
    wrong = {
        f"{room} -> {another}"
        for room, imported_rooms in edges().items()
        for another in imported_rooms
        if room.startswith("onhost") and not another.startswith("onhost")
    }
    assert wrong == set()


@pytest.mark.parametrize("root", [ROOT, LAB, TESTS, TASKS], ids=lambda root: root.name)
def test_no_folder_has_more_files_than_a_person_reads_in_a_listing(root: Path) -> None:
    # What is linked into the package is no room of it.
    inside = (path for path in root.rglob("*") if path.is_dir() and not path.is_symlink())
    folders = [root, *inside]
    counts = {str(folder): len(list(folder.glob("*.py"))) for folder in folders}
    assert {folder: count for folder, count in counts.items() if count > MOST} == {}


def test_modules_without_a_test_of_their_name_are_listed() -> None:
    """Others reach them. A new module has a test of its name, or a line in the list."""
    tests = Path(__file__).parent
    untested_modules = sorted(
        str(path.relative_to(ROOT))
        for path in modules().values()
        if path.stem not in ("__init__", "__main__")
        and not (tests / path.relative_to(ROOT)).with_name(f"test_{path.name}").exists()
    )
    target_path = tests / "untested_by_name.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        target_path.write_text("\n".join(untested_modules) + "\n", encoding="utf-8")
    assert untested_modules == target_path.read_text(encoding="utf-8").split()
