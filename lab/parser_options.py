"""The lists of `catalogue/options`, by the real engines' own parsers.

`python -m lab.parser_options` writes them anew.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import lockstep
from lab import parsers
from lab.core.state import open_lab
from lab.packages.python_packages import VLLM_VERSION
from lockstep.core.product import CATALOGUE
from lockstep.onhost.engines import ENGINES

VERSIONS = {"vllm": VLLM_VERSION, "sglang": parsers.SGLANG_VERSION}
FOLDER = CATALOGUE / "options"
_ASK = """
import json
from lockstep.onhost.engines import ENGINES
print(json.dumps(ENGINES[{engine!r}].parse({argv!r}).spellings))
"""


def question(engine: str) -> str:
    """A program for an engine's Python that prints every way to write each option, as JSON."""
    known_engine = ENGINES[engine]
    flag = () if known_engine.positional_model else known_engine.spellings("model")[:1]
    return _ASK.format(engine=engine, argv=[*known_engine.entries[0], *flag, "a/b"])


def option_list(engine: str, answer: str) -> str:
    """The list of one engine: each long option, and behind it the short ones that mean the same."""
    rows = []
    for spellings in json.loads(answer):
        short = [spelling for spelling in spellings if not spelling.startswith("--")]
        first, *other_spellings = (spelling for spelling in spellings if spelling.startswith("--"))
        rows += [" ".join((first, *short)), *other_spellings]
    head = (
        f"# Every option of the parser of {ENGINES[engine].title} {VERSIONS[engine]} "
        "(lab/parser_options.py)."
    )
    return "\n".join([head, *sorted(rows), ""])


def main() -> None:
    """Command line; see the module's docstring."""
    interpreter_paths = parsers.interpreters(
        open_lab().cache, lambda line: print(line, file=sys.stderr)
    )
    for engine, python in interpreter_paths.items():
        result = subprocess.run(
            [str(python), "-c", question(engine)],
            cwd=Path(lockstep.__file__).parents[1],
            env={"HF_HUB_OFFLINE": "1", "HOME": "/tmp"},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        option_text = option_list(engine, result.stdout.splitlines()[-1])
        (FOLDER / f"{engine}.txt").write_text(option_text, encoding="utf-8")


if __name__ == "__main__":
    main()
