"""The `lockstep` command."""

from __future__ import annotations

import errno
from importlib.util import find_spec
from typing import Any

import click

from lockstep.cli.shared import DONE, INTERRUPTED, UNUSABLE, LazyGroup
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
#: Heading of the first help → its commands, in this order.
GROUPS = {
    "Every day": _EVERY_DAY,
    "Models": ("plan", "recipe", "model", "adopt", "bench", "client", "lock"),
    "Care and trouble": (
        *("help", "backup", "gc", "remove", "cluster", "alert", "blackbox", "evidence"),
    ),
    "For developers": ("lab",),
}


class _Lockstep(LazyGroup):
    """Ends with the exit code that a command returns.

    Errors that are the user's end with one paragraph and exit code 2, not a traceback.
    """

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in their groups, those of every day first."""
        wide = max(map(len, self.modules))
        for heading, names in GROUPS.items():
            commands = ((name, self.get_command(context, name)) for name in names)
            rows = [
                (f"{name:{wide}}", each.get_short_help_str(formatter.width - wide - 6))
                for name, each in commands
                if each
            ]
            # A wheel has none for developers.
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
        except KeyboardInterrupt as ended:
            code = _interrupted(str(ended))
        except click.Abort as ended:
            # Click makes one of a no to a question, and of Ctrl-C at a password.
            if not isinstance(ended.__context__, KeyboardInterrupt):
                raise
            code = _interrupted()
        except OSError as fault:
            if fault.errno != errno.ENOSPC or fault.filename is not None:
                raise
            click.echo("lockstep: there is no space left where the output goes", err=True)
            code = UNUSABLE
        context.exit(code or DONE)


def _interrupted(more: str = "") -> int:
    click.echo(f"Ended by Ctrl-C. {more}".rstrip(), err=True)
    return INTERRUPTED


def _say_version(context: click.Context, option: click.Parameter, asked: bool) -> None:
    if asked:
        click.echo(f"lockstep {version()}")
        context.exit()


@click.command(
    "lockstep",
    cls=_Lockstep,
    # Stand-ins need their checkout.
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
