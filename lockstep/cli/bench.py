"""`lockstep bench`: speed and quality of the hot model, by a measurement that checks itself."""

from __future__ import annotations

from importlib import import_module

import click

# Command → module that defines it; imported only when it is used.
_COMMANDS = {
    "compare": "lockstep.cli.bench_compare",
    "gate": "lockstep.cli.bench_gate",
    "report": "lockstep.cli.bench_report",
    "record": "lockstep.cli.bench_record",
    "run": "lockstep.cli.bench_run",
}


class _Bench(click.Group):
    """`bench HOST` is `bench run HOST`: a word that is no command of this group is the engine."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        command: click.Command = getattr(import_module(_COMMANDS[name]), name)
        return command

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*_COMMANDS, *context.help_option_names):
            args = ["run", *args]
        return super().parse_args(context, args)


@click.command(cls=_Bench)
def bench() -> None:
    """Measure the hot model: `lockstep bench HOST|URL [--suite NAME]`.

    HOST is a host of the inventory: its engine is measured through an SSH tunnel and compared with
    the lock. URL is any engine that this machine reaches. The commands below work on results.
    """
