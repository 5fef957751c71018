"""`lockstep open`: page, chat and API of the Sparks, brought here where they are on loopback."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import click

from lockstep.cli.inventory_option import INVENTORY, typed
from lockstep.cli.shared import DONE, LIMIT, UNUSABLE
from lockstep.clients.offer import Offer, of_host, reached
from lockstep.core.errors import LockstepError, paragraph
from lockstep.fleet.hosts import Host, choose
from lockstep.fleet.tunnel import Tunnel, tunnel
from lockstep.inventory.values import is_loopback
from lockstep.units.gateway_unit import chat_url

_LOOK_S = 0.5


@dataclass(frozen=True)
class _Addresses:
    """Where a person reaches a Spark: what its gateway offers, page, and chat."""

    offer: Offer
    page: str
    chat: str | None

    @property
    def inside(self) -> dict[str, str]:
        """Those of them that only the Spark itself reaches, by name."""
        every = {"page": self.page, "chat": self.chat or ""}
        return {
            name: url for name, url in every.items() if is_loopback(urlsplit(url).hostname or "")
        }

    def through(self, urls: Sequence[str]) -> _Addresses:
        """The same with these in place of those inside."""
        found = dict(zip(self.inside, urls, strict=True))
        return replace(self, page=found.get("page", self.page), chat=found.get("chat", self.chat))


@click.command()
@INVENTORY
@LIMIT
@click.option("--print", "only_prints", is_flag=True, help="Show the addresses; open no tunnel.")
def open(inventory: Path, limit: tuple[str, ...], only_prints: bool) -> int:
    """Show page, chat and API, and bring them here by ssh.

    Where a Spark keeps them on its loopback, a tunnel opens them on this machine until Ctrl-C. An
    address that other machines reach is shown as it is.

    Exit codes: 0 done; 2 a tunnel could not be opened, or has ended, or wrong use.
    """
    every, hosts = choose(inventory, limit)
    with contextlib.ExitStack() as stack:
        code, tunnels = DONE, []
        for host in hosts:
            there = _addresses(host, every)
            here, through = there, None
            if there.inside and host.login.words and not only_prints:
                try:
                    through = stack.enter_context(
                        tunnel(host.login, tuple(there.inside.values()), same_ports=True)
                    )
                except LockstepError as fault:
                    click.echo(paragraph(f"lockstep: {fault}"), err=True)
                    code = UNUSABLE
                    continue
                tunnels.append(through)
                here = there.through(through.urls)
            for line in _lines(there, here, is_open=through is not None):
                click.echo(line)
        if tunnels:
            click.echo("Open until Ctrl-C.")
            _wait(tunnels)
    return code


def _addresses(host: Host, every: list[Host]) -> _Addresses:
    offer = of_host(host, every)
    return _Addresses(offer, offer.url, chat_url(host.plan.settings, reached(host)))


def _lines(there: _Addresses, here: _Addresses, *, is_open: bool) -> Iterator[str]:
    offer = there.offer
    yield offer.host
    yield f"  page  {here.page}"
    if here.chat:
        yield f"  chat  {here.chat}"
    yield f"  API   {here.page}/v1"
    if offer.keyed:
        yield f"  key   `{typed('key', 'add', 'NAME')}` makes one for a person, and shows it once"
    else:
        yield "  key   none is needed there"
    if offer.authority:
        yield f"  trust {offer.url}/root.crt, its own authority (`lockstep help tls`)"
    if there.inside and not is_open and offer.host != "@local":
        names = " and ".join(there.inside)
        yield f"  {names} only on the Spark itself; `{typed('open')}` brings them here"


def _wait(tunnels: list[Tunnel]) -> None:
    """Wait for Ctrl-C. LockstepError where a tunnel ends before."""
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            for each in tunnels:
                each.check()
            time.sleep(_LOOK_S)
