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


def option_list(engine: str, python: Path) -> str:
    """The list of one engine: each long option, and behind it the short ones that mean the same."""
    known = ENGINES[engine]
    flag = () if known.positional_model else known.spellings("model")[:1]
    done = subprocess.run(
        [str(python), "-c", _ASK.format(engine=engine, argv=[*known.entries[0], *flag, "a/b"])],
        cwd=Path(lockstep.__file__).parents[1],
        env={"HF_HUB_OFFLINE": "1", "HOME": "/tmp"},
        capture_output=True,
        text=True,
        check=True,
    )
    rows = []
    for spellings in json.loads(done.stdout.splitlines()[-1]):
        short = [each for each in spellings if not each.startswith("--")]
        first, *others = (each for each in spellings if each.startswith("--"))
        rows += [" ".join((first, *short)), *others]
    head = (
        f"# Every option of the parser of {known.title} {VERSIONS[engine]} (lab/parser_options.py)."
    )
    return "\n".join([head, *sorted(rows), ""])


def main() -> None:
    """Command line; see the module's docstring."""
    found = parsers.interpreters(open_lab().cache, lambda line: print(line, file=sys.stderr))
    for engine, python in found.items():
        (FOLDER / f"{engine}.txt").write_text(option_list(engine, python), encoding="utf-8")


if __name__ == "__main__":
    main()
