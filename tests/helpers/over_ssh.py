"""`lockstep` in this process or in a fork of it, with an ssh that is a few lines of shell."""

import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from a_probe import program
from click.testing import CliRunner, Result
from fork import Fork

from lockstep.cli.main import main


def environment(folder: Path, ssh: str) -> dict[str, str]:
    """The environment with this ssh, which lies in `bin` of the folder."""
    program(folder / "bin", "ssh", ssh)
    return {"PATH": f"{folder / 'bin'}:/usr/bin:/bin"}


def invoke_lockstep(folder: Path, ssh: str, *words: str) -> Result:
    """Run `lockstep WORDS`; returns its outcome."""
    return CliRunner().invoke(main, words, env=environment(folder, ssh))


def start_lockstep(
    *words: str, env: Mapping[str, str], begin: Callable[[], object] = lambda: None, **more: Any
) -> Fork:
    """Start `lockstep WORDS` with exactly this environment; `begin` is called in the process."""

    def run() -> None:
        # Whoever runs the tests in the background has them ignore Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # As an interpreter that starts has them.
        sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr
        sys.argv[:] = ["lockstep", *words]
        begin()
        main()

    return Fork(run, env=env, text=True, **more)
