"""`lockstep open`: page, chat and API of the Sparks, brought here where they are on loopback."""

from __future__ import annotations

import contextlib
import http.client
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import click

from lockstep.cli.inventory_option import INVENTORY, typed
from lockstep.cli.shared import DONE, LIMIT, UNUSABLE
from lockstep.clients.offer import Offer, of_host
from lockstep.core.errors import LockstepError, paragraph
from lockstep.fleet.hosts import Host, ask, choose
from lockstep.fleet.tunnel import Tunnel, tunnel
from lockstep.inventory.values import is_loopback
from lockstep.units.gateway_unit import chat_url
from lockstep.units.scripts import switch_path

_LOOK_S = 0.5
# Seconds in which a server must answer, and a Spark say why it does not.
_ANSWERS_WITHIN_S, _ASK_LIMIT_S = 5.0, 20.0


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
    address that other machines reach is shown as it is. What does not answer is named.

    Exit codes: 0 done; 2 a tunnel could not be opened, or has ended, nobody has deployed to a Spark
    yet, or wrong use.
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
                here = there.through(through.urls)
            silent = [] if only_prints else _silent(here)
            if "page" in silent and (why := _why_silent(host)):
                click.echo(f"{host.name}: {why}", err=True)
                code = UNUSABLE
                continue
            tunnels += [through] if through else []
            for line in _lines(there, here, is_open=through is not None):
                click.echo(line)
            if silent:
                names = " and ".join(silent)
                click.echo(f"  no answer from {names} now; `{typed('status')}` says more")
        if tunnels:
            click.echo("Open until Ctrl-C.")
            _wait(tunnels)
    return code


def _addresses(host: Host, every: list[Host]) -> _Addresses:
    offer = of_host(host, every)
    return _Addresses(offer, offer.url, chat_url(host.plan.settings, host.address))


def _silent(here: _Addresses) -> list[str]:
    """Names of the servers that do not answer at these addresses."""
    urls = {"page": here.page, "chat": here.chat}
    return [name for name, url in urls.items() if url and not _answers(url)]


def _answers(url: str) -> bool:
    """Whether a server is there. A tunnel's own end always is: only an answer counts."""
    parts = urlsplit(url)
    where = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    try:
        if parts.scheme == "https":
            # No tunnel leads to one, and its certificate may be of an authority unknown here.
            socket.create_connection(where, _ANSWERS_WITHIN_S).close()
            return True
        with contextlib.closing(
            http.client.HTTPConnection(*where, timeout=_ANSWERS_WITHIN_S)
        ) as line:
            line.request("HEAD", "/")
            line.getresponse()
    except (OSError, http.client.HTTPException):
        return False
    return True


def _why_silent(host: Host) -> str:
    """Why nothing of a Spark answers: no deploy, no connection; "" where it is something else."""
    argv = [switch_path(host.plan.settings), "status"]
    return ask(host.login, argv, limit_s=_ASK_LIMIT_S).fault


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
