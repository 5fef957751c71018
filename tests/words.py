"""Check of words: names, first words of docstrings, retired words, class names (docs/words.md).

usage: python tests/words.py    a line for each fault; exit code 1 if there is one
"""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: Participles that do not end in "ed". Alone, such a word names a deed and not a thing.
PARTICIPLES = (
    "begun bound broken brought built caught chosen done drawn driven fallen felt forgotten found"
    " given gone heard held hidden hung kept known laid led left lent lit lost made meant met owed"
    " paid said seen sent shown shut sold sought spent spoken stood struck stuck taken taught"
    " thought thrown told torn undone woken worn written"
)
PRONOUNS = (
    "after anything before both each everything here it itself mine nobody nothing one ones other"
    " others ours rest same something such that theirs them there these they this those what which"
    " who whoever whom whose yours"
)
#: Other words that end in "ed".
NOUNS = "bed breed deed embed exceed feed need proceed red seed shed speed succeed weed"
LONE_WORDS = {*PARTICIPLES.split(), *PRONOUNS.split()}
OPENINGS = re.compile(
    r"(Who|What|Whoever|Whatever|That|Whom|Whose|Those|This|Which|Whether|How|Why|Where|When)\b"
)
#: Parts of names that the glossary has another word for.
RETIRED = re.compile(r"(?:^|_)(?:twins?|neighbou?r|canary|floors?|stackmate)(?:_|$)")
#: The same in pages for people, outside of code.
RETIRED_IN_PAGES = re.compile(r"\b(twins?|canary|memory floor|speed floor|stackmate)\b", re.I)
#: Names that stay, each because others than our code write or read it.
EXCEPTIONS = {
    "found": "field of every error, and of a difference in `lockstep diff --json`",
    "allowed": "field of every error",
    "expected": "key of the inventory, and of a difference in `lockstep diff --json`",
    "enabled": "key of the inventory, as in pyinfra and Ansible",
    "precompiled": "key of the inventory and of the lock file",
    "asked": "key of the lock file",
    "resolved": "key of the lock file",
    "unanswered": "key of the lock file",
    "checked": "function that inventories import",
    "disconnected": "attribute of uvicorn's cycle of a request",
}


def is_lone(name: str) -> bool:
    """Tell whether a name is a participle or a pronoun without its noun."""
    word = name.strip("_").lower()
    if word in NOUNS.split() or name.isupper():
        return False
    return word in LONE_WORDS or re.fullmatch(r"[a-z]+ed", word) is not None


def defined_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of everything that a module defines, but tests: these are sentences."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if not name.startswith("test_"):
                    yield node.lineno, name
            case ast.ClassDef(name=name) | ast.arg(arg=name) | ast.alias(asname=str(name)):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield node.lineno, name


def faults_of_module(place: str, tree: ast.Module) -> Iterator[str]:
    """Yield the faults of one Python file."""
    if is_lone(Path(place).stem) and Path(place).stem not in EXCEPTIONS:
        yield f"{place}: a module is called what it holds"
    for line, name in sorted(set(defined_names(tree))):
        if is_lone(name) and name not in EXCEPTIONS:
            yield f"{place}:{line}: `{name}` is a participle or a pronoun without its noun"
        if RETIRED.search(name.lower()):
            yield f"{place}:{line}: `{name}` has a word that docs/words.md has another one for"
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node) or ""
            if OPENINGS.match(text):
                line = getattr(node, "lineno", 1)
                yield f"{place}:{line}: a docstring begins with {text.split()[0]!r}"


def faults_of_page(place: str, text: str) -> Iterator[str]:
    """Yield the retired words of one page, outside of code."""
    for number, line in enumerate(text.splitlines(), 1):
        for match in RETIRED_IN_PAGES.finditer(re.sub(r"`[^`]*`|\]\([^)]*\)", "", line)):
            yield f"{place}:{number}: {match[0]!r} has another word in docs/words.md"


def main() -> int:
    """Check every Python file and page that git knows; return 1 if there is a fault."""
    listing = subprocess.check_output(["git", "ls-files", "*.py", "*.md"], cwd=ROOT, text=True)
    rooms_by_class: dict[str, set[str]] = defaultdict(set)
    faults: list[str] = []
    for place in listing.split():
        if not (ROOT / place).exists() or place in {"docs/words.md", "CHANGELOG.md"}:
            continue
        text = (ROOT / place).read_text(encoding="utf-8")
        if place.endswith(".md"):
            faults += faults_of_page(place, text)
            continue
        tree = ast.parse(text)
        faults += faults_of_module(place, tree)
        if place.startswith(("lockstep/", "tasks/")):
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    rooms_by_class[node.name].add(str(Path(place).parent))
    faults += [
        f"class `{name}` stands in {', '.join(sorted(rooms))}: one name, one meaning"
        for name, rooms in sorted(rooms_by_class.items())
        if len(rooms) > 1
    ]
    print(*faults, f"{len(faults)} faults of words", sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
