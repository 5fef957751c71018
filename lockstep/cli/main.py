"""The `lockstep` command."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import click

from lockstep.cli.shared import DONE, UNUSABLE, LazyGroup
from lockstep.core.errors import LockstepError, paragraph

_OWN = (
    *("adopt", "backup", "bench", "cluster", "deploy", "diff", "evidence", "gc", "lock", "log"),
    *("model", "plan", "recipe", "remove", "rollback", "status", "switch"),
)
_COMMANDS = {
    **{name: f"lockstep.cli.{name}" for name in _OWN},
    "update": "lockstep.cli.lock",
    **{name: f"lockstep.cli.gateway.{name}" for name in ("client", "key")},
    **{name: f"lockstep.cli.monitoring.{name}" for name in ("alert", "blackbox")},
}


class _Lockstep(LazyGroup):
    """Ends with the exit code that a command returns.

    Errors that are the user's end with one paragraph and exit code 2, not a traceback.
    """

    def invoke(self, context: click.Context) -> Any:
        try:
            code = super().invoke(context)
        except LockstepError as fault:
            click.echo(paragraph(f"lockstep: {fault}"), err=True)
            code = UNUSABLE
        context.exit(code or DONE)


@click.command(
    "lockstep",
    cls=_Lockstep,
    modules={**_COMMANDS, "lab": "lab.cli"},
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(metadata.version("lockstep"))
def main() -> None:
    """Provision DGX Sparks, and keep them identical.

    `lockstep deploy` is the deploy; `pyinfra inventories/spark.py deploy.py` is the same, in full.

    Exit codes: 0 done; 1 a finding that needs action; 2 wrong use, or could not tell.
    """


if __name__ == "__main__":
    main()
