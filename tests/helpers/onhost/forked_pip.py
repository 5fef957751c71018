"""pip many times from one process that has imported it (`forks`): its imports are most of a run."""

import importlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

from forks import forks, serve

from lockstep.onhost.environment import wheel_store

_HELPERS = str(Path(__file__).parents[1])


def fork_pip(monkeypatch) -> None:
    """Have a wheel store fork the pip of this Python. Another interpreter is started as ever."""
    seam = SimpleNamespace(run=_run, PIPE=subprocess.PIPE)
    monkeypatch.setattr(wheel_store, "subprocess", seam)


def _run(
    argv: Sequence[str], *, input: str, env: Mapping[str, str], **more: object
) -> subprocess.CompletedProcess[str]:
    if argv[:3] != [sys.executable, "-m", "pip"]:
        return subprocess.run(argv, input=input, env=env, **more)  # type: ignore[call-overload,no-any-return]
    run = forks(__file__, _HELPERS).run
    return run(argv[2:], env, Path.cwd(), limit_s=180, text=input)


def _import() -> None:
    """Import what a download needs."""
    for name in ("_internal.cli.main", "_internal.commands.download", "_vendor.requests"):
        importlib.import_module(f"pip.{name}")


if __name__ == "__main__":
    serve(_import)
    # The folder of this run, not of the process that imported pip.
    tempfile.tempdir = None
    sys.exit(importlib.import_module("pip._internal.cli.main").main())
