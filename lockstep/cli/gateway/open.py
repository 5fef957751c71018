"""`lockstep open`: page, chat and API of the Sparks, through a tunnel if they are on loopback."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import click

from lockstep.cli.common import DONE, LIMIT, UNUSABLE
from lockstep.cli.inventory_option import INVENTORY, command_text
from lockstep.clients.offer import GatewayOffer, of_host
from lockstep.core.errors import LockstepError, paragraph
from lockstep.fleet.hosts import Host, ask, choose
from lockstep.fleet.tunnel import Tunnel, tunnel
from lockstep.inventory.values import is_loopback
from lockstep.onhost.core import http_client
from lockstep.units.gateway_unit import chat_url
from lockstep.units.scripts import switch_path

_LOOK_S = 0.5
# Seconds for a server to answer, and for a Spark to say why its server does not.
_ANSWERS_WITHIN_S, _ASK_LIMIT_S = 5.0, 20.0


@dataclass(frozen=True)
class _Addresses:
    """The addresses of a Spark for a person: the gateway's offer, the page, and the chat."""

    offer: GatewayOffer
    page: str
    chat: str | None

    @property
    def inside(self) -> dict[str, str]:
        """The addresses by name that only the Spark itself can reach."""
        every = {"page": self.page, "chat": self.chat or ""}
        return {
            name: url for name, url in every.items() if is_loopback(urlsplit(url).hostname or "")
        }

    def through(self, urls: Sequence[str]) -> _Addresses:
        """Return the addresses with `urls` in place of those that only the Spark can reach."""
        local_urls = dict(zip(self.inside, urls, strict=True))
        return replace(
            self, page=local_urls.get("page", self.page), chat=local_urls.get("chat", self.chat)
        )


@click.command()
@INVENTORY
@LIMIT
@click.option("--print", "only_prints", is_flag=True, help="Show the addresses; open no tunnel.")
def open(inventory: Path, limit: tuple[str, ...], only_prints: bool) -> int:
    """Show page, chat and API, and bring them here by ssh.

    If a Spark keeps them on its loopback, a tunnel opens them on this machine until Ctrl-C. An
    address that other machines reach is shown as it is. A server that does not answer is named.

    Exit codes: 0 done; 2 a tunnel could not be opened, or has ended, nobody has deployed to a Spark
    yet, or wrong use.
    """
    every, hosts = choose(inventory, limit)
    with contextlib.ExitStack() as stack:
        code, tunnels = DONE, []
        for host in hosts:
            remote_addresses = _addresses(host, every)
            local_addresses, through = remote_addresses, None
            if remote_addresses.inside and host.login.words and not only_prints:
                try:
                    through = stack.enter_context(
                        tunnel(host.login, tuple(remote_addresses.inside.values()), same_ports=True)
                    )
                except LockstepError as fault:
                    click.echo(paragraph(f"lockstep: {fault}"), err=True)
                    code = UNUSABLE
                    continue
                local_addresses = remote_addresses.through(through.urls)
            silent = [] if only_prints else _silent(local_addresses)
            if "page" in silent and (why := _why_silent(host)):
                click.echo(f"{host.name}: {why}", err=True)
                code = UNUSABLE
                continue
            tunnels += [through] if through else []
            for line in _lines(remote_addresses, local_addresses, is_open=through is not None):
                click.echo(line)
            if silent:
                names = " and ".join(silent)
                click.echo(f"  no answer from {names} now; `{command_text('status')}` says more")
        if tunnels:
            click.echo("Open until Ctrl-C.")
            _wait(tunnels)
    return code


def _addresses(host: Host, every: list[Host]) -> _Addresses:
    offer = of_host(host, every)
    return _Addresses(offer, offer.url, chat_url(host.plan.settings, host.address))


def _silent(addresses: _Addresses) -> list[str]:
    """Return the names of the servers that do not answer at these addresses."""
    urls = {"page": addresses.page, "chat": addresses.chat}
    return [name for name, url in urls.items() if url and not _answers(url)]


def _answers(url: str) -> bool:
    """Tell whether a server answers. A tunnel accepts any connection, so only an answer counts."""
    parts = urlsplit(url)
    try:
        if parts.scheme == "https":
            # No tunnel leads to an HTTPS address, and its certificate's authority may be unknown
            # here.
            where = parts.hostname or "", parts.port or 443
            socket.create_connection(where, _ANSWERS_WITHIN_S).close()
            return True
        http_client.ask(url, _ANSWERS_WITHIN_S, "HEAD")
    except http_client.FAULTS:
        return False
    return True


def _why_silent(host: Host) -> str:
    """Return why nothing of a Spark answers: no deploy, no connection; "" for another reason."""
    argv = [switch_path(host.plan.settings), "status"]
    return ask(host.login, argv, limit_s=_ASK_LIMIT_S).fault


def _lines(
    remote_addresses: _Addresses, local_addresses: _Addresses, *, is_open: bool
) -> Iterator[str]:
    offer = remote_addresses.offer
    yield offer.host
    yield f"  page  {local_addresses.page}"
    if local_addresses.chat:
        yield f"  chat  {local_addresses.chat}"
    yield f"  API   {local_addresses.page}/v1"
    if offer.has_key:
        yield (
            f"  key   `{command_text('key', 'add', 'NAME')}` makes one for a person, and shows "
            "it once"
        )
    else:
        yield "  key   none is needed there"
    if offer.authority:
        yield f"  trust {offer.url}/root.crt, its own authority (`lockstep help tls`)"
    if remote_addresses.inside and not is_open and offer.host != "@local":
        names = " and ".join(remote_addresses.inside)
        yield f"  {names} only on the Spark itself; `{command_text('open')}` brings them here"


def _wait(tunnels: list[Tunnel]) -> None:
    """Wait for Ctrl-C.

    Raises:
        LockstepError: a tunnel ended earlier.
    """
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            for tunnel in tunnels:
                tunnel.check()
            time.sleep(_LOOK_S)
