"""Commands of our own: readers, programs on the host, long jobs with progress, refusals."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, Self, TypeAlias

from paramiko import SSHException
from pyinfra import host, logger, state
from pyinfra.api import FunctionCommand, QuoteString, StringCommand
from pyinfra.connectors.util import CommandOutput, OutputLine
from pyinfra.context import ctx_host

from lockstep.files import remote_exec
from lockstep.files.managed_file import command
from lockstep.onhost.core import event_lines
from lockstep.tasks.run import deploy_lock, log_filter, run_report
from lockstep.tasks.run import reader_answers as facts

#: The yields of an operation.
Commands: TypeAlias = Generator[StringCommand | FunctionCommand, None, None]

REASON_LINES = 6
_WHY = ("failed", "why")


class ChangingCommand(StringCommand):
    """A command that may change the host, after which the known facts do not count."""

    @classmethod
    def of_argv(cls, argv: Sequence[str], **arguments: Any) -> Self:
        """Return an argument list as one command, every word quoted."""
        return cls(*(QuoteString(word) for word in argv), **arguments)

    def execute(self, state: Any, host: Any, connector_arguments: Any) -> Any:
        """Run it on the host."""
        if deploy_lock.is_lock_lost(host):
            why = "the lock of this deploy is gone: the connection was cut, or this machine slept"
            return report_failure(host, f"{why}. Remedy: deploy again."), CommandOutput([])
        deploy_lock.report_change(host)
        log_filter.print_pending_operation()
        # Also before it: another host's operation may ask meanwhile.
        facts.drop_answers(host)
        try:
            return self.send_to_host(state, host, connector_arguments)
        finally:
            facts.drop_answers(host)

    def send_to_host(self, state: Any, host: Any, connector_arguments: Any) -> Any:
        """Run the command; a subclass may add what its run means."""
        return super().execute(state, host, connector_arguments)


def changing_command(argv: Sequence[str], **arguments: Any) -> ChangingCommand:
    """Return an argument list as one command, every word quoted."""
    return ChangingCommand.of_argv(argv, **arguments)


def adopted_things() -> list[str]:
    """Return the things that the current host's inventory takes over on purpose."""
    return list(host.data.get("adopt") or ())


def write_files_command(document: Mapping[str, object]) -> StringCommand:
    """Return the program that writes files; their text comes on standard input, never in argv.

    It changes nothing where a foreign thing is in the way.
    """
    document = {**document, "adopt": adopted_things()}
    return changing_command(
        remote_exec.COMMAND,
        _stdin=[remote_exec.program_input("records.checked_file_writes", document)],
    )


class StreamedCommand(ChangingCommand):
    """A command whose output is shown as it comes, so that a long step is seen to be alive.

    Its news are in the last lines of the run, too. The reason of its failure has each failed start.
    """

    def send_to_host(self, state: Any, host: Any, connector_arguments: Any) -> Any:
        """Run the command on the host, printing every line."""
        connector_arguments.update(self.connector_arguments)
        status, command_output = host.run_shell_command(
            self, print_output=True, print_input=state.print_input, **connector_arguments
        )
        lines = [event_lines.read_event(line.line) for line in command_output]
        for line in lines:
            if event_lines.kind_of(line) == "news":
                run_report.record_closing_text(host.name, f"{host.name}: {line}")
        if not status:
            reason = [line for line in lines[:-REASON_LINES] if event_lines.kind_of(line) in _WHY]
            reason += lines[-REASON_LINES:]
            run_report.outcome_of_host(host.name).reason = "\n".join(reason)
        # These lines were shown already, and pyinfra must not show them again.
        return status, CommandOutput([])


def transient_job_command(name: str, argv: Sequence[str], *options: str) -> StreamedCommand:
    """Return long work as a transient unit, which outlives this connection and never runs twice.

    `options` are those of `job run` ("--uid", "lockstep"); the log is
    /var/log/lockstep/jobs/NAME.log.
    """
    return StreamedCommand.of_argv(transient_job_argv(name, argv, *options))


def transient_job_argv(name: str, argv: Sequence[str], *options: str) -> list[str]:
    """Return the argument list of `transient_job_command`."""
    return [*command("job", "run", name, *options, "--", *argv)]


def fail_host_operation(message: str) -> Iterator[FunctionCommand]:
    """Make the operation fail on this host with one message; other hosts go on."""
    yield FunctionCommand(_fail_with_message, (message,), {})


def _fail_with_message(state: Any, host: Any, message: str) -> bool:
    return report_failure(host, message)


def report_failure(host: Any, message: str) -> bool:
    """Report why an operation failed, now and at the end of the run; return False."""
    for line in message.splitlines():
        logger.error(f"{host.print_prefix}{line}")
    run_report.outcome_of_host(host.name).reason = message
    return False


def run_on(peer: Any, argv: Sequence[str], is_shown: bool = True) -> tuple[bool, CommandOutput]:
    """Run words on another host of this run, as one of its operations; return success, output."""
    if is_shown:
        log_filter.print_pending_operation()
    with ctx_host.use(peer):
        connector_arguments = facts.connector_arguments(peer)
        try:
            is_ok, output = peer.run_shell_command(
                changing_command(argv),
                print_output=is_shown,
                print_input=is_shown and state.print_input,
                **connector_arguments,
            )
        except (OSError, SSHException) as error:
            return False, CommandOutput([OutputLine("stderr", f"{peer.name}: {error}")])
    return is_ok, output


def engine_build_job(stage: str, user: str) -> StreamedCommand:
    """Return one stage of the venv engine as a job of its own account."""
    return transient_job_command(f"engine-{stage}", command("engine-build", stage), "--uid", user)
