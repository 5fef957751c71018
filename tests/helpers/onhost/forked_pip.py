"""pip in forks of a process that has imported it (`forks`): its imports are most of a run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

from forks import forks, serve

_HELPERS = str(Path(__file__).parents[1])


def run(
    argv: Sequence[str], *, input: str, env: Mapping[str, str], **others: object
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run`, of this interpreter's `-m pip`; of another one, in its own process."""
    if argv[0] != sys.executable:
        return subprocess.run(argv, input=input, env=env, **others)  # type: ignore[call-overload,no-any-return]
    _, _, *words = argv
    return forks(__file__, _HELPERS).run(words, env, Path.cwd(), limit_s=180, text=input)


def _import() -> None:
    for name in ("cli.main", "commands.download", "resolution.resolvelib.resolver"):
        import_module(f"pip._internal.{name}")


if __name__ == "__main__":
    serve(_import)
    from pip._internal.cli.main import main

    sys.exit(main())
