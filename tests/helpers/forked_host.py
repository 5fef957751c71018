"""What a host's Python runs, in a fork of one that has imported our modules there (`forks`)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from forks import forks, serve

_REPOSITORY = Path(__file__).parents[2]


def run(
    code: str, text: str, environment: Mapping[str, str], texts: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """`python -c CODE`, which reads a text; `texts` are those of modules that are other ones here.

    A host's own Python has no such site packages to look through as the tests' has.
    """
    argv = ["python", code, json.dumps(dict(texts))]
    return forks(__file__, "", "-S").run(argv, environment, Path("/"), limit_s=60, text=text)


class _Replaced:
    """Imports modules from other texts than their files'."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name in self._texts else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(self._texts[module.__name__], vars(module))


def _import() -> None:
    """Import all that readers import."""
    sys.path[0] = str(_REPOSITORY)
    for path in sorted((_REPOSITORY / "lockstep/onhost/facts").glob("*.py")):
        import_module(f"lockstep.onhost.facts.{path.stem}")


def _main() -> None:
    serve(_import)
    _, code, texts = sys.argv
    replaced = json.loads(texts)
    if replaced:
        for name in [name for name in sys.modules if name.partition(".")[0] == "lockstep"]:
            del sys.modules[name]
        sys.meta_path.insert(0, _Replaced(replaced))  # type: ignore[arg-type]
    exec(code, {"__name__": "__main__"})


if __name__ == "__main__":
    _main()
