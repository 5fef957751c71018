"""No program decides by our own sentences: lines have kinds, answers have fields."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Two words or more, as they stand in a text or in a pattern.
_WORDS = re.compile(r"[A-Za-z][A-Za-z']*(?: [A-Za-z][A-Za-z']*)+")
#: File → what it looks for in texts of other programs, whose words stand in ours by chance.
ALLOWED_WORDS = {
    "lockstep/deploy/summary.py": {"ost key", "resolve hostname", "timed out"},
    "lockstep/evidence/parts.py": {
        *("storage driver", "default runtime", "log driver", "live restore", "huge pages")
    },
    "lockstep/fleet/hosts.py": {"open file"},
    "lockstep/fleet/login.py": {"not found"},
    "lockstep/lock/resolve/python.py": {"timed out"},
    "lockstep/onhost/facts/logged_events.py": {"ut of memory"},
    "lockstep/onhost/images/pull_image.py": {
        *("no space left", "authentication required", "manifest unknown", "not found")
    },
    # Our own words, to be taken out.
    "lockstep/core/errors.py": {"Did you mean"},
    "lockstep/inventory/lines.py": {"unknown key"},
}


def texts(node: ast.AST) -> Iterator[ast.Constant]:
    """The texts inside a node."""
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part


def wanted_texts(module: ast.AST) -> Iterator[ast.Constant]:
    """The texts that a module looks for in other texts."""
    for node in ast.walk(module):
        if isinstance(node, ast.Compare):
            is_choice = isinstance(node.comparators[0], ast.Tuple | ast.List | ast.Set | ast.Dict)
            if isinstance(node.ops[0], ast.In | ast.NotIn) and not is_choice:
                yield from texts(node.left)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of = node.func.value
            if node.func.attr in ("startswith", "endswith"):
                yield from (text for word in node.args for text in texts(word))
            elif isinstance(of, ast.Name) and of.id == "re" and node.args:
                yield from texts(node.args[0])


def docstrings(module: ast.AST) -> Iterator[int]:
    """The identity of each docstring."""
    for node in ast.walk(module):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            yield id(body[0].value)


def test_nothing_looks_for_words_that_we_wrote_ourselves() -> None:
    paths = [*(ROOT / "lockstep").rglob("*.py"), *(ROOT / "tasks").rglob("*.py")]
    modules = {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}
    texts_by_path, own_texts = {}, list[str]()
    for path, module in modules.items():
        texts_by_path[path] = {id(text): str(text.value) for text in wanted_texts(module)}
        ignored_ids = {*texts_by_path[path], *docstrings(module)}
        own_texts += [str(text.value) for text in texts(module) if id(text) not in ignored_ids]
    whole_text = "\0".join(own_texts)
    found: dict[str, set[str]] = {}
    for path, path_texts in texts_by_path.items():
        for words in _WORDS.findall("\0".join(path_texts.values())):
            if len(words) > 6 and words in whole_text:
                found.setdefault(str(path.relative_to(ROOT)), set()).add(words)
    advice = "decide by a kind (`onhost/core/event_lines`), a field or an exit code"
    assert found == ALLOWED_WORDS, advice
