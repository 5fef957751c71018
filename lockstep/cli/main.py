"""The `lockstep` command."""

from __future__ import annotations

import sys
from importlib import import_module, metadata

import click

from lockstep.core.errors import LockstepError, paragraph

# Command → module that defines it and its name there; imported only when it is used.
_COMMANDS = {
    "bench": ("lockstep.cli.bench", "bench"),
    "cluster": ("lockstep.cli.cluster", "cluster"),
    "diff": ("lockstep.cli.diff", "diff"),
    "evidence": ("lockstep.cli.evidence", "evidence"),
    "gc": ("lockstep.cli.gc", "gc"),
    "lab": ("lab.cli", "lab"),
    "lock": ("lockstep.cli.lock", "lock"),
    "model": ("lockstep.cli.model", "model"),
    "plan": ("lockstep.cli.plan", "plan"),
    "recipe": ("lockstep.cli.recipe", "recipe"),
    "rollback": ("lockstep.cli.rollback", "rollback"),
    "switch": ("lockstep.cli.switch", "switch"),
}


class _Lazy(click.Group):
    def list_commands(self, context: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        module, attribute = _COMMANDS[name]
        command: click.Command = getattr(import_module(module), attribute)
        return command


@click.command(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(metadata.version("lockstep"))
def cli() -> None:
    """Provision DGX Sparks, and keep them identical.

    The deploy itself is `pyinfra inventories/spark.py deploy.py`.

    Exit codes: 0 done; 1 a finding that needs action; 2 wrong use, or could not tell.
    """


def main() -> None:
    """Entry point: errors that are the user's end with one paragraph, not a traceback."""
    try:
        cli()
    except LockstepError as fault:
        click.echo(paragraph(f"lockstep: {fault}"), err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
