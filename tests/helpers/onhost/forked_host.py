"""Code for a host's Python, run in a fork of a process that has imported our modules (`forks`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from forks import forks, serve

_REPOSITORY = Path(__file__).parents[3]
_HELPERS = str(Path(__file__).parents[1])


def run(
    code: str,
    *words: str,
    environment: Mapping[str, str] | None = None,
    text: str = "",
    texts: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `python -c CODE WORDS` with a text as input.

    `texts` replace the texts of modules. A host's own Python has no site packages to search, which
    the tests' Python has.
    """
    argv = ["python", code, json.dumps(dict(texts or {})), *words]
    environment = os.environ if environment is None else environment
    return forks(__file__, _HELPERS, "-S").run(argv, environment, Path("/"), limit_s=60, text=text)


def run_program(
    word: str, *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A program of this repository, as on a host."""
    code = "import runpy; runpy.run_module('lockstep.onhost', run_name='__main__')"
    return run(code, word, *arguments, environment=environment)


class _TextImporter:
    """Imports modules from given texts instead of their files."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name in self._texts else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(self._texts[module.__name__], vars(module))


def _import() -> None:
    """Import all modules that readers import."""
    # As with `-I`, leave out the folder of this file and PYTHONPATH.
    sys.path[:2] = [str(_REPOSITORY)]
    for path in sorted((_REPOSITORY / "lockstep/onhost/facts").glob("*.py")):
        import_module(f"lockstep.onhost.facts.{path.stem}")


def _main() -> None:
    serve(_import)
    _, code, texts, *words = sys.argv
    sys.argv[:] = ["-c", *words]
    sys.path[1:1] = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    replacements = json.loads(texts)
    if replacements:
        for name in [name for name in sys.modules if name.partition(".")[0] == "lockstep"]:
            del sys.modules[name]
        sys.meta_path.insert(0, _TextImporter(replacements))  # type: ignore[arg-type]
    # A process started from here would import the main module anew, if it is a file.
    sys.modules["__main__"] = main = ModuleType("__main__")
    exec(code, vars(main))


if __name__ == "__main__":
    _main()
