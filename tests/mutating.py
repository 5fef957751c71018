"""Changes the product in one place at a time, drawn by a seed: a test must go red.

A mutant negates a condition, swaps a comparison, flips or moves a constant, returns nothing, leaves
a call out, or leaves a line of a template out. For each one the tests run that are nearest to its
file (`tests/nearest_tests.py`). Golden files are left out, because they would notice any
edit. A red test counts only if it is green without the mutant. Some mutants change nothing that
anybody would notice, so one that escapes is a question, no fault.

    make mutants [COUNT=60] [SEED=1]
    python tests/mutating.py [--count 60] [--seed 1] [--record FILE] [--again FILE] [PATH...]

`--record` keeps each verdict as it comes, and a later call goes on there. `--again` takes the
mutants of such a record: the exit code is 1 where one escapes that was caught before.
"""

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue

from nearest_tests import HERE, NearestTests

sys.path.append(str(HERE / "tests/proofs"))
import run_record

PRODUCT = ("lockstep", "tasks", "templates")
#: The tests of one mutant take less than a minute here; a mutant that makes them hang is caught.
_LIMIT_S = 300.0
_OPPOSITE: dict[type[ast.cmpop], str] = {
    **{ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not", ast.IsNot: "is"},
    **{ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"},
    **{ast.In: "not in", ast.NotIn: "in"},
}
#: What a caller that asks for the truth takes for None.
_NOTHING = ("return", "None", "False", "0", "''", "[]", "()", "{}")
_COMMENT = re.compile(r"\s*($|#|\{#|\{%)")


@dataclass(frozen=True)
class Mutant:
    """One changed place: the `nth` occurrence of `old` in the file becomes `new`."""

    file: str
    old: str
    new: str
    nth: int
    #: The test that failed; empty while none ran, "escaped" if all were green.
    verdict: str = ""

    @property
    def place(self) -> tuple[str, str, str, int]:
        """The identity of the mutant, by which another tree has the same one."""
        return self.file, self.old, self.new, self.nth

    def apply(self, text: str) -> str:
        """The file's text with the mutant in it; ValueError if its place is not there."""
        parts = text.split(self.old)
        if len(parts) <= self.nth + 1:
            raise ValueError(f"{self.file} does not have this text any more: {self.old}")
        head = self.old.join(parts[: self.nth + 1])
        return head + self.new + self.old.join(parts[self.nth + 1 :])


def mutants_of(file: str, text: str) -> list[Mutant]:
    """Every mutant of one file."""
    edits = _edits_of_python(text) if file.endswith(".py") else _edits_of_template(text)
    mutants = []
    for begin, end, new in edits:
        # Whole lines are kept, so that a person can read a record and find the place.
        first = text.rfind("\n", 0, begin) + 1
        last = text.find("\n", end)
        old = text[first : last if last >= 0 else len(text)]
        edited_lines = text[first:begin] + new + text[end : first + len(old)]
        mutants.append(Mutant(file, old, edited_lines, text[:first].count(old)))
    return mutants


def _edits_of_template(text: str) -> Iterator[tuple[int, int, str]]:
    at = 0
    for line in text.splitlines(keepends=True):
        if not _COMMENT.match(line):
            yield at, at + len(line.rstrip("\n")), ""
        at += len(line)


def _edits_of_python(text: str) -> Iterator[tuple[int, int, str]]:
    starts = [0]
    raw = text.encode()
    for line in raw.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def span(node: ast.expr | ast.stmt) -> tuple[int, int]:
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        return len(raw[:begin].decode()), len(raw[:end].decode())

    for node in _code(ast.parse(text)):
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            yield *span(node.test), f"(not ({ast.unparse(node.test)}))"
        elif isinstance(node, ast.Compare) and len(node.ops) == 1:
            left_text, right = ast.unparse(node.left), ast.unparse(node.comparators[0])
            yield *span(node), f"({left_text} {_OPPOSITE[type(node.ops[0])]} {right})"
        elif isinstance(node, ast.BoolOp):
            word = " or " if isinstance(node.op, ast.And) else " and "
            yield *span(node), f"({word.join(f'({ast.unparse(value)})' for value in node.values)})"
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield *span(node), str(not node.value)
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            yield *span(node), str(node.value + 1)
        elif isinstance(node, ast.Return) and ast.unparse(node.value or node) not in _NOTHING:
            yield *span(node), "return None"
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield *span(node), "pass"


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes that act when the program runs, each once; no types, no text of f-strings."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                yield from _code(child)


def draw(paths: list[str], seed: int, count: int) -> list[Mutant]:
    """Draw so many mutants of these files; the same tree and seed give the same ones."""
    every = [
        mutant
        for path in sorted(_files(paths))
        for mutant in mutants_of(path, (HERE / path).read_text())
    ]
    return random.Random(seed).sample(every, min(count, len(every)))


def _files(paths: list[str]) -> Iterator[str]:
    for path in paths:
        found = [HERE / path] if (HERE / path).is_file() else sorted((HERE / path).rglob("*"))
        if not found:
            sys.exit(f"{path}: no such file or folder in {HERE}")
        for target_path in found:
            if target_path.suffix in (".py", ".j2") and target_path.is_file():
                yield str(target_path.relative_to(HERE))


class Judge:
    """Runs tests in copies of the tree, a copy for each worker."""

    def __init__(self, folder: Path, copies: int) -> None:
        self._nearest = NearestTests()
        self._free_trees: SimpleQueue[Path] = SimpleQueue()
        ignore_rule = shutil.ignore_patterns(".venv", ".git", "*.egg-info", "__pycache__")
        for number in range(copies):
            tree = folder / str(number)
            shutil.copytree(HERE, tree, symlinks=True, ignore=ignore_rule)
            self._free_trees.put(tree)

    def judge_mutant(self, mutant: Mutant) -> Mutant:
        """The mutant with its verdict."""
        tests = self._nearest.of(mutant.file)
        tree = self._free_trees.get()
        path = tree / mutant.file
        whole = path.read_text()
        try:
            path.write_text(mutant.apply(whole))
            red = self._red(tests, tree)
            path.write_text(whole)
            if "::" in red and (again := self._red([red], tree)):
                red = f"red without the mutant, too: {again}"
        except ValueError:
            red = "gone"
        finally:
            path.write_text(whole)
            self._free_trees.put(tree)
        return replace(mutant, verdict=red or "escaped")

    def _red(self, tests: list[str], tree: Path) -> str:
        """The first test that fails; another word if no test could run or the tests had no end."""
        argv = [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider"]
        try:
            result = subprocess.run(
                [*argv, "-n0", "-k", "not golden", f"--basetemp={tree}.tmp", *tests],
                cwd=tree,
                # The copy, not the checkout that is installed.
                env={**os.environ, "PYTHONPATH": str(tree)},
                capture_output=True,
                text=True,
                check=False,
                timeout=_LIMIT_S,
            )
        except subprocess.TimeoutExpired:
            return "no end"
        if result.returncode in (0, 5):
            return ""
        failure = re.search(
            r"^(?:FAILED|ERROR) ([^\s\[]+(?:\[.*?\](?= - |$))?)", result.stdout, re.MULTILINE
        )
        return failure[1] if failure else f"pytest ended with {result.returncode}"


def main() -> int:
    """Judge the mutants and print a line for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("paths", nargs="*", metavar="PATH", help="files or folders of the product")
    parser.add_argument("--count", type=int, default=60, help="how many mutants; 60")
    parser.add_argument("--seed", type=int, default=1, help="draws the same ones again; 1")
    parser.add_argument("--record", type=Path, help="keep verdicts here; go on after a cut")
    parser.add_argument("--again", type=Path, help="take the mutants of this record")
    args = parser.parse_args()
    mutants = run_record.read(args.again, Mutant) or draw(
        args.paths or list(PRODUCT), args.seed, args.count
    )
    verdicts = {mutant.place: mutant for mutant in run_record.read(args.record, Mutant)}
    open_mutants = [replace(item, verdict="") for item in mutants if item.place not in verdicts]
    workers = min(4, os.cpu_count() or 1)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        judge = Judge(Path(folder), workers)
        for mutant in pool.map(judge.judge_mutant, open_mutants):
            run_record.add(args.record, mutant)
            verdicts[mutant.place] = mutant
            print(f"{mutant.verdict}\n{_description(mutant)}", flush=True)
    escaped_ones = [item for item in mutants if verdicts[item.place].verdict == "escaped"]
    # A mutant of `--again` has its verdict of before.
    lost_ones = [item for item in escaped_ones if item.verdict not in ("", "escaped")]
    print(f"{len(mutants)} mutants, {len(escaped_ones)} escaped; {len(lost_ones)} caught before")
    for mutant in escaped_ones:
        note = ", and was caught before" if mutant in lost_ones else ""
        print(f"escaped{note}\n{_description(mutant)}")
    return 1 if lost_ones else 0


def _description(mutant: Mutant) -> str:
    old, new = (" ".join(text.split()) for text in (mutant.old, mutant.new))
    return f"  {mutant.file}\n    - {old}\n    + {new}"


if __name__ == "__main__":
    sys.exit(main())
