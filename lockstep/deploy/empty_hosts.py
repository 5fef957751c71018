"""Hosts on which nothing of Lockstep is: what a deploy brings there, and from where."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lockstep.deploy.events import Empty
from lockstep.host.intended import Intended
from lockstep.inventory.backup import TWIN
from lockstep.inventory.host import images_of, models_of
from lockstep.lock.image_reference import pull_reference


@dataclass(frozen=True)
class Host:
    """One host of a run.

    Attributes:
        intended: What it is to be.
        facts: What the reader `preflight` answered.
        files: What the reader `files` answered.
        peers: Names of the hosts of this run that it may copy from.
        empty: Whether nothing of Lockstep is there.
        known: Whether the last whole deploy from here was to it, too.
    """

    intended: Intended
    facts: Mapping[str, Any]
    files: Mapping[str, Any]
    peers: Sequence[str]
    empty: bool
    known: bool


def empty_hosts(hosts: Mapping[str, Host]) -> Iterator[Empty]:
    """An event for each host that is empty; `hosts` are those of the run, by name."""
    for name, host in hosts.items():
        if host.empty:
            lines = [*_downloads(name, hosts), *_keys(name, host, hosts), *_chats(host)]
            yield Empty(name, host.known, lines)


def _downloads(name: str, hosts: Mapping[str, Host]) -> Iterator[str]:
    host = hosts[name]
    models, images = _models(host), _images(host)
    if models:
        sources = _sources(name, models, hosts, _models)
        yield f"weights: {sum(models.values()) / 1e9:.1f} GB, {sources}"
    if images:
        yield f"images: {_sources(name, images, hosts, _images)}"


def _models(host: Host) -> dict[str, int]:
    """Repository → bytes still to come, of the models that a host lacks."""
    pins, blobs = host.intended.pins.models, host.facts["models"]
    missing = {
        name: pins[name].missing_bytes(blobs[name]) for name in models_of(host.intended.plan)
    }
    return {name: size for name, size in missing.items() if size}


def _images(host: Host) -> dict[str, int]:
    """Image → compressed bytes, of those that a host lacks."""
    pins, present = host.intended.pins.images, host.facts["docker"].get("images", [])
    return {
        name: pins[name].size
        for name in images_of(host.intended.plan)
        if pull_reference(name, pins[name]) not in present
    }


def _sources(
    name: str,
    wanted: Mapping[str, int],
    hosts: Mapping[str, Host],
    lacks: Callable[[Host], Mapping[str, int]],
) -> str:
    """ "2 from spark-1, 1 from the internet"."""
    order = list(hosts)
    counts: dict[str, int] = {}
    for what in wanted:
        peers = [each for each in hosts[name].peers if what in _wants(hosts[each])]
        having = [each for each in peers if what not in lacks(hosts[each])]
        # What nobody has is fetched by the first one that needs it.
        earlier = [each for each in peers if order.index(each) < order.index(name)]
        source = " or ".join(having) or next(iter(earlier), "the internet")
        counts[source] = counts.get(source, 0) + 1
    return ", ".join(f"{count} from {source}" for source, count in counts.items())


def _wants(host: Host) -> list[str]:
    return [*models_of(host.intended.plan), *images_of(host.intended.plan)]


def _keys(name: str, host: Host, hosts: Mapping[str, Host]) -> Iterator[str]:
    files = {each: other.files for each, other in hosts.items()}
    givers: dict[str, list[str]] = {}
    for key in host.intended.shared_keys:
        giver = key.giver(files)
        if giver not in ("", name) and key.content(files.get(giver)) is not None:
            givers.setdefault(giver, []).append(key.what)
    for giver, keys in givers.items():
        yield f"from {giver}: {', '.join(keys)}"


def _chats(host: Host) -> Iterator[str]:
    """Where its chats are, of a host that had some."""
    plan = host.intended.plan
    if not (host.known and plan.settings.webui.enabled):
        return
    backup = plan.settings.backup
    twin = plan.backups.twin
    places = [*([twin.name] if twin else []), *(to for to in backup.to if to != TWIN)]
    if backup.enabled and places:
        yield (
            f"chats: in its backups ({', '.join(map(str, places))}); "
            "`lockstep backup restore` brings them back (`lockstep help backup`)"
        )
    else:
        yield "chats: Open WebUI begins without any; no backup of them lies elsewhere"
