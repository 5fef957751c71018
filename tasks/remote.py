"""Commands of our own: readers, programs on the host, long jobs with progress, refusals."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, Self, TypeAlias

from paramiko import SSHException
from pyinfra import host, logger, state
from pyinfra.api import FunctionCommand, QuoteString, StringCommand
from pyinfra.connectors.util import CommandOutput, OutputLine
from pyinfra.context import ctx_host

from lockstep.core.failed_starts import telling
from lockstep.files import sent
from lockstep.files.managed_file import command
from lockstep.tasks import deploy_lock, log_filter, report
from lockstep.tasks.facts import host as facts

#: What an operation yields.
Commands: TypeAlias = Generator[StringCommand | FunctionCommand, None, None]

REASON_LINES = 6


class Changing(StringCommand):
    """A command that may change the host: what is known of it no longer counts."""

    @classmethod
    def of(cls, argv: Sequence[str], **arguments: Any) -> Self:
        """An argument list as one command, every word quoted."""
        return cls(*(QuoteString(word) for word in argv), **arguments)

    def execute(self, state: Any, host: Any, connector_arguments: Any) -> Any:
        """Run it on the host."""
        if deploy_lock.lost(host):
            why = "the lock of this deploy is gone: the connection was cut, or this machine slept"
            return failed(host, f"{why}. Remedy: deploy again."), CommandOutput([])
        deploy_lock.changes(host)
        log_filter.say_operation()
        # Before as well: another host's operation may ask meanwhile.
        facts.forget(host)
        try:
            return self.run(state, host, connector_arguments)
        finally:
            facts.forget(host)

    def run(self, state: Any, host: Any, connector_arguments: Any) -> Any:
        """What running it means."""
        return super().execute(state, host, connector_arguments)


def words(argv: Sequence[str], **arguments: Any) -> Changing:
    """An argument list as one command, every word quoted."""
    return Changing.of(argv, **arguments)


def adopted() -> list[str]:
    """What the current host's inventory takes over on purpose."""
    return list(host.data.get("adopt") or ())


def write(document: Mapping[str, object]) -> StringCommand:
    """The program that writes files; their text goes through standard input, never through argv.

    It changes nothing where something in the way is not Lockstep's.
    """
    document = {**document, "adopt": adopted()}
    return words(sent.COMMAND, _stdin=[sent.document("records.write_files", document)])


class Streamed(Changing):
    """A command whose output is shown as it comes, so that a long step is seen to be alive.

    Lines that begin with `repeated` are in the last lines of the run, too.
    """

    repeated = ""

    def run(self, state: Any, host: Any, connector_arguments: Any) -> Any:
        """Run it on the host, printing every line."""
        connector_arguments.update(self.connector_arguments)
        status, output = host.run_shell_command(
            self, print_output=True, print_input=state.print_input, **connector_arguments
        )
        for line in output if self.repeated else ():
            if line.line.startswith(self.repeated):
                report.news(host.name, f"{host.name}: {line.line}")
        if not status:
            lines = [line.line for line in output]
            report.of(host.name).reason = "\n".join(telling(lines, REASON_LINES))
        # What was shown already is not shown again by pyinfra.
        return status, CommandOutput([])


def job(name: str, argv: Sequence[str], *options: str, repeated: str = "") -> Streamed:
    """Long work as a transient unit that outlives this connection and never runs twice at once.

    `options` are of `job run` ("--uid", "lockstep"); the log is /var/log/lockstep/jobs/NAME.log.
    `repeated` is how lines begin that the run ends with, too.
    """
    made = Streamed.of(job_words(name, argv, *options))
    made.repeated = repeated
    return made


def job_words(name: str, argv: Sequence[str], *options: str) -> list[str]:
    """The argument list of `job`."""
    return [*command("job", "run", name, *options, "--", *argv)]


def refuse(message: str) -> Iterator[FunctionCommand]:
    """Fail the operation on this host with one message; other hosts go on."""
    yield FunctionCommand(_fail, (message,), {})


def _fail(state: Any, host: Any, message: str) -> bool:
    return failed(host, message)


def failed(host: Any, message: str) -> bool:
    """Say why an operation failed, now and at the end of the run; False, as a command answers."""
    for line in message.splitlines():
        logger.error(f"{host.print_prefix}{line}")
    report.of(host.name).reason = message
    return False


def run_on(other: Any, argv: Sequence[str], shown: bool = True) -> tuple[bool, CommandOutput]:
    """Run words on another host of this run, as its own operations would; whether, and output."""
    if shown:
        log_filter.say_operation()
    with ctx_host.use(other):
        mine = facts.connector_arguments(other)
        try:
            done, output = other.run_shell_command(
                words(argv), print_output=shown, print_input=shown and state.print_input, **mine
            )
        except (OSError, SSHException) as error:
            return False, CommandOutput([OutputLine("stderr", f"{other.name}: {error}")])
    return done, output


def build(stage: str, user: str) -> Streamed:
    """One stage of the venv engine as a job of its own account."""
    return job(f"engine-{stage}", command("engine-build", stage), "--uid", user)
