"""One question to several hosts: their answers in order, and the exit code of all together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import click

from lockstep.cli.common import DONE, FINDINGS, UNUSABLE
from lockstep.fleet.hosts import Host, at_once

#: A host with its answer and "", or with None and the reason why it has no answer.
HostAnswer = tuple[Host, Any, str]


def of_each(work: Callable[[Host], tuple[Any, str]], hosts: Sequence[Host]) -> list[HostAnswer]:
    """Run ``work`` for all hosts at once; return the answers in the order of the hosts."""
    return [(host, *answer) for host, answer in zip(hosts, at_once(work, hosts), strict=True)]


def answering_hosts(answers: Iterable[HostAnswer]) -> Iterator[tuple[Host, Any]]:
    """Yield the hosts that answered; print the reason for the others."""
    for host, answer, fault in answers:
        if fault:
            click.echo(f"{host.name}: {fault}", err=True)
        else:
            yield host, answer


def exit_code(answers: Iterable[HostAnswer], finding: bool = False) -> int:
    """Return 2 if a host did not answer, 1 with a finding, else 0."""
    return UNUSABLE if any(fault for *_, fault in answers) else FINDINGS if finding else DONE
