"""`lockstep` in this process, with an ssh that is a few lines of shell."""

from __future__ import annotations

from pathlib import Path

from a_probe import program
from click.testing import CliRunner, Result

from lockstep.cli.main import main


def environment(folder: Path, ssh: str) -> dict[str, str]:
    """The environment with this ssh, which lies in `bin` of the folder."""
    program(folder / "bin", "ssh", ssh)
    return {"PATH": f"{folder / 'bin'}:/usr/bin:/bin"}


def invoke_lockstep(folder: Path, ssh: str, *words: str) -> Result:
    """Run `lockstep WORDS`; returns its outcome."""
    return CliRunner().invoke(main, words, env=environment(folder, ssh))
