"""One question to several hosts: their answers in turn, and the exit code of all together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import click

from lockstep.cli.shared import DONE, FINDINGS, UNUSABLE
from lockstep.fleet.hosts import Host, at_once

#: A host, its answer, and ""; or None for the answer, and why there is none.
Told = tuple[Host, Any, str]


def of_each(work: Callable[[Host], tuple[Any, str]], hosts: Sequence[Host]) -> list[Told]:
    """What ``work`` gives for each host, all at once, in their order."""
    return [(host, *told) for host, told in zip(hosts, at_once(work, hosts), strict=True)]


def answered(told: Iterable[Told]) -> Iterator[tuple[Host, Any]]:
    """The hosts that answered, one by one; of the others the reason is printed."""
    for host, answer, fault in told:
        if fault:
            click.echo(f"{host.name}: {fault}", err=True)
        else:
            yield host, answer


def exit_code(told: Iterable[Told], finding: bool = False) -> int:
    """2 where a host did not answer, 1 with a finding, else 0."""
    return UNUSABLE if any(fault for *_, fault in told) else FINDINGS if finding else DONE
