"""Code for a host's Python, run in a fork of a process that has imported our modules (`forks`)."""

import os
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType

from forks import forks, serve

_REPOSITORY = Path(__file__).parents[3]
_HELPERS = str(Path(__file__).parents[1])


def run(
    code: str, *words: str, environment: Mapping[str, str] | None = None, text: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `python -c CODE WORDS` with a text as input.

    A host's own Python has no site packages to search, which the tests' Python has.
    """
    environment = os.environ if environment is None else environment
    run = forks(__file__, _HELPERS, "-S").run
    return run(["python", code, *words], environment, Path("/"), limit_s=60, text=text)


def run_program(
    word: str, *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A program of this repository, as on a host."""
    code = "import runpy; runpy.run_module('lockstep.onhost', run_name='__main__')"
    return run(code, word, *arguments, environment=environment)


def _import() -> None:
    """Import all modules that readers import."""
    # As with `-I`, leave out the folder of this file and PYTHONPATH.
    sys.path[:2] = [str(_REPOSITORY)]
    for path in sorted((_REPOSITORY / "lockstep/onhost/facts").glob("*.py")):
        import_module(f"lockstep.onhost.facts.{path.stem}")


def _main() -> None:
    serve(_import)
    _, code, *words = sys.argv
    sys.argv[:] = ["-c", *words]
    sys.path[1:1] = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    # A process started from here would import the main module anew, if it is a file.
    sys.modules["__main__"] = main = ModuleType("__main__")
    exec(code, vars(main))


if __name__ == "__main__":
    _main()
