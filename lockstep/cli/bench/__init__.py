"""`lockstep bench`: speed and quality of the hot model, by a measurement that checks itself."""

from __future__ import annotations

import click

from lockstep.cli.common import LazyGroup

_COMMANDS = ("compare", "gate", "report", "record", "run")


class _Bench(LazyGroup):
    """The group `bench`: a first word that is no command is the engine for `bench run`."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*_COMMANDS, *context.help_option_names):
            args = ["run", *args]
        return super().parse_args(context, args)


@click.command(cls=_Bench, modules={name: f"lockstep.cli.bench.{name}" for name in _COMMANDS})
def bench() -> None:
    """Measure the hot model: `lockstep bench HOST|URL [--suite NAME]`.

    HOST is a host of the inventory: its engine is measured through an SSH tunnel and compared with
    the lock. URL is any engine that this machine reaches. The commands below work on results.
    """
