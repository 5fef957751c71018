"""Lists the test files near a file: those of its name, its importers, its folder, and so on.

    python tests/nearest_tests.py [FILE...]

Prints them, nearest first. Without FILE it takes the files that differ from origin/main, or from
the last commit where there is no origin/main, or those of the last commit if none does. `make
check` runs these tests, and `tests/mutating.py` uses them for each file that it changes. Programs
that a test starts by name are no imports, so a folder counts too.
"""

import ast
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
CODE = ("lockstep", "tasks", "lab", "benchmarks", "tests")
TESTS = ("tests/unit/", "tests/operations/", "tests/render/")
#: Whoever changes anything runs these: where what stands, and what the docs say of it.
ALWAYS = ("tests/unit/test_rooms.py", "tests/unit/docs/test_links.py")
#: For one changed file; its importers' importers come last.
MOST = 24


class NearestTests:
    """The imports of the whole tree, read once."""

    def __init__(self) -> None:
        files = sorted(path for folder in CODE for path in (HERE / folder).rglob("*.py"))
        self._text = {str(path.relative_to(HERE)): path.read_text() for path in files}
        self._imports = {file: _imported_names(text) for file, text in self._text.items()}
        self._tests = [
            file
            for file in self._text
            if file.startswith(TESTS) and Path(file).name.startswith("test_")
        ]

    def of(self, file: str, most: int = MOST) -> list[str]:
        """The test files of one file, nearest first."""
        if file in self._tests:
            return [file]
        path = Path(file)
        tests = [test for test in self._tests if Path(test).stem == f"test_{path.stem}"]
        if path.suffix == ".py" and path.parts[0] in CODE:
            tests += self._by_import(file, most)
        else:
            tests += [test for test in self._tests if path.name in self._text[test]]
            if file.startswith(("templates/", "tests/render/", "catalogue/", "group_data/")):
                tests += [test for test in self._tests if test.startswith("tests/render/")]
        return list(dict.fromkeys(tests))[:most]

    def _by_import(self, file: str, most: int) -> list[str]:
        root, *path = Path(file).parts
        folder = {"tasks": "tests/operations", "lab": "tests/unit/lab"}.get(
            root, f"tests/unit/{Path(*path).parent}"
        )
        tests: list[str] = []
        near, visited_files = {file}, {file}
        while near and len(tests) < most:
            modules = {name for near_file in near for name in _module_names(near_file)}
            near = {
                near_file for near_file, names in self._imports.items() if names & modules
            } - visited_files
            visited_files |= near
            tests += sorted(near & set(self._tests))
            tests += [test for test in self._tests if str(Path(test).parent) == folder]
        return tests

    def of_all(self, files: Iterable[str]) -> list[str]:
        """The test files of several files, each once."""
        tests = [test for file in files for test in self.of(file)]
        return list(dict.fromkeys([*tests, *ALWAYS]))


def _module_names(file: str) -> set[str]:
    """The names by which a file is imported."""
    name = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    if file.startswith("tasks/"):
        return {name, f"lockstep.{name}"}
    return {name, Path(file).stem} if file.startswith("tests/") else {name}


def _imported_names(text: str) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return names


def changed_files() -> list[str]:
    """Files that differ from origin/main and still exist; of the last commit where none does."""
    if not _git("rev-parse", "--verify", "origin/main"):
        print("no origin/main here: the tests near what differs from HEAD", file=sys.stderr)
    new_files = ("ls-files", "--others", "--exclude-standard")
    for since in ("origin/main", "HEAD", "HEAD~1"):
        base = _git("merge-base", "HEAD", since)
        if base and (files := [*_git("diff", "--name-only", base[0]), *_git(*new_files)]):
            return sorted({file for file in files if (HERE / file).is_file()})
    return []


def _git(*words: str) -> list[str]:
    argv = ["git", "-C", str(HERE), *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.splitlines()


if __name__ == "__main__":
    if missing_files := [file for file in sys.argv[1:] if not (HERE / file).is_file()]:
        sys.exit(f"no such file below {HERE}: {', '.join(missing_files)}")
    print(*NearestTests().of_all(sys.argv[1:] or changed_files()), sep="\n")
