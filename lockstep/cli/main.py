"""The `lockstep` command."""

from __future__ import annotations

import errno
from importlib.util import find_spec
from typing import Any

import click

from lockstep.cli.common import DONE, INTERRUPTED, UNUSABLE, LazyGroup
from lockstep.core.errors import LockstepError, paragraph
from lockstep.core.terminal import outlive_readers
from lockstep.core.version import version

_OWN = (
    *("adopt", "backup", "bench", "cluster", "deploy", "diff", "evidence", "gc", "help", "init"),
    *("lock", "log", "model", "plan", "recipe", "remove", "rollback", "status", "switch"),
)
_COMMANDS = {
    **{name: f"lockstep.cli.{name}" for name in _OWN},
    "update": "lockstep.cli.lock",
    **{name: f"lockstep.cli.gateway.{name}" for name in ("client", "key", "open")},
    **{name: f"lockstep.cli.monitoring.{name}" for name in ("alert", "blackbox")},
}

_EVERY_DAY = (
    *("init", "deploy", "status", "switch", "log", "diff", "rollback", "update", "key", "open"),
)
#: The commands of the first help by heading, in this order.
GROUPS = {
    "Every day": _EVERY_DAY,
    "Models": ("plan", "recipe", "model", "adopt", "bench", "client", "lock"),
    "Care and trouble": (
        *("help", "backup", "gc", "remove", "cluster", "alert", "blackbox", "evidence"),
    ),
    "For developers": ("lab",),
}


class _Lockstep(LazyGroup):
    """The root group: a command's return value becomes the exit code.

    Errors of the user end with one paragraph and exit code 2, not with a traceback.
    """

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in their groups, the everyday ones first."""
        wide = max(map(len, self.modules))
        for heading, names in GROUPS.items():
            commands = ((name, self.get_command(context, name)) for name in names)
            rows = [
                (f"{name:{wide}}", subcommand.get_short_help_str(formatter.width - wide - 6))
                for name, subcommand in commands
                if subcommand
            ]
            # A wheel has no commands for developers.
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def main(self, *args: Any, **words: Any) -> Any:
        outlive_readers()
        return super().main(*args, **words)

    def invoke(self, context: click.Context) -> Any:
        try:
            code = super().invoke(context)
        except LockstepError as fault:
            click.echo(paragraph(f"lockstep: {fault}"), err=True)
            code = UNUSABLE
        except KeyboardInterrupt as interrupt:
            code = _end_interrupted(str(interrupt))
        except click.Abort as interrupt:
            # Click aborts for a no to a question, and for Ctrl-C at a password.
            if not isinstance(interrupt.__context__, KeyboardInterrupt):
                raise
            code = _end_interrupted()
        except OSError as fault:
            if fault.errno != errno.ENOSPC or fault.filename is not None:
                raise
            click.echo("lockstep: there is no space left where the output goes", err=True)
            code = UNUSABLE
        context.exit(code or DONE)


def _end_interrupted(more: str = "") -> int:
    click.echo(f"Ended by Ctrl-C. {more}".rstrip(), err=True)
    return INTERRUPTED


def _say_version(context: click.Context, option: click.Parameter, is_wanted: bool) -> None:
    if is_wanted:
        click.echo(f"lockstep {version()}")
        context.exit()


@click.command(
    "lockstep",
    cls=_Lockstep,
    # The lab's stand-in hosts need their checkout.
    modules={**_COMMANDS, **({"lab": "lab.cli"} if find_spec("lab") else {})},
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_say_version,
    help="Show the version and exit.",
)
def main() -> None:
    """Provision DGX Sparks, and keep them identical.

    `lockstep deploy` is the deploy; `pyinfra INVENTORY deploy.py` is the same, in full.

    Exit codes: 0 done; 1 a finding that needs action; 2 wrong use, or could not tell;
    130 ended by Ctrl-C.
    """


if __name__ == "__main__":
    main()
