"""`lockstep` many times from one process that has imported it (`forks`).

The deploy that it starts is a fork, too (`forked_pyinfra`).
"""

import importlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import forked_pyinfra
from forks import Forks, forks, serve


def lockstep(
    *argv: str, folder: Path, environment: Mapping[str, str], path: str
) -> subprocess.CompletedProcess[str]:
    """Run `lockstep ARGV` in a folder, as a user types it, with exactly this environment."""
    run = forks(__file__, path, other_forks=(forked_pyinfra.of(path),)).run
    return run(["lockstep", *argv], environment, folder, limit_s=300)


class _Deploy:
    """The part of a process that `lockstep.deploy.child` uses."""

    def __init__(self, argv: Sequence[str], cwd: Path, env: Mapping[str, str], **_: Any) -> None:
        child_stdin, answers = os.pipe()
        output_end, says = os.pipe()
        run = deploys.start(["pyinfra", *argv[1:]], env, cwd, [child_stdin, says, says])
        os.close(child_stdin)
        os.close(says)
        self.stdin, self.stdout = os.fdopen(answers, "wb"), os.fdopen(output_end, "rb")
        self.poll, self.wait, self.kill = run.poll, run.wait, run.kill

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stdin.close()
        self.stdout.close()


def _import() -> None:
    """Import all that the command imports."""
    for name in ("lockstep.cli.main", "lockstep.cli.deploy", "fake_spark"):
        importlib.import_module(name)


if __name__ == "__main__":
    #: The process that forks the deploys.
    deploys = Forks.asked_by(int(sys.argv[1]))
    serve(_import)
    from lockstep.cli.main import main
    from lockstep.deploy import child

    popen = SimpleNamespace(Popen=_Deploy, PIPE=subprocess.PIPE, STDOUT=subprocess.STDOUT)
    child.subprocess = popen  # type: ignore[assignment]
    sys.exit(main())
