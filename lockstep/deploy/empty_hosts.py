"""Hosts without anything of Lockstep: the content that a deploy brings, and its sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lockstep.deploy.events import Empty
from lockstep.host.desired_state import DesiredState
from lockstep.inventory.backup import PEER
from lockstep.inventory.host import checkpoints_of, images_of
from lockstep.lock.image_reference import pull_reference


@dataclass(frozen=True)
class EmptyHost:
    """One host of a run.

    Attributes:
        desired_state: Its desired state.
        facts: The answer of the reader `preflight`.
        files: The answer of the reader `files`.
        peers: Names of the hosts of this run from which it may copy.
        empty: True if nothing of Lockstep is there.
        was_deployed: True if the last whole deploy from here included it.
    """

    desired_state: DesiredState
    facts: Mapping[str, Any]
    files: Mapping[str, Any]
    peers: Sequence[str]
    empty: bool
    was_deployed: bool


def empty_hosts(hosts: Mapping[str, EmptyHost]) -> Iterator[Empty]:
    """Yield an event for each empty host; `hosts` are those of the run, by name."""
    for name, host in hosts.items():
        if host.empty:
            lines = [*_downloads(name, hosts), *_keys(name, host, hosts), *_chats(host)]
            yield Empty(name, host.was_deployed, lines)


def _downloads(name: str, hosts: Mapping[str, EmptyHost]) -> Iterator[str]:
    host = hosts[name]
    checkpoints, images = _checkpoints(host), _images(host)
    if checkpoints:
        sources = _sources(name, checkpoints, hosts, _checkpoints)
        yield f"weights: {sum(checkpoints.values()) / 1e9:.1f} GB, {sources}"
    if images:
        yield f"images: {_sources(name, images, hosts, _images)}"


def _checkpoints(host: EmptyHost) -> dict[str, int]:
    """Return the bytes still to come by repository, for the checkpoints that a host lacks."""
    pins, blobs = host.desired_state.pins.checkpoints, host.facts["checkpoints"]
    missing = {
        name: pins[name].missing_bytes(blobs[name])
        for name in checkpoints_of(host.desired_state.plan)
    }
    return {name: size for name, size in missing.items() if size}


def _images(host: EmptyHost) -> dict[str, int]:
    """Return the compressed bytes by image, for the images that a host lacks."""
    pins, present = host.desired_state.pins.images, host.facts["docker"].get("images", [])
    return {
        name: pins[name].size
        for name in images_of(host.desired_state.plan)
        if pull_reference(name, pins[name]) not in present
    }


def _sources(
    name: str,
    wanted_sizes: Mapping[str, int],
    hosts: Mapping[str, EmptyHost],
    lacks: Callable[[EmptyHost], Mapping[str, int]],
) -> str:
    """Return the sources as "2 from spark-1, 1 from the internet"."""
    order = list(hosts)
    counts: dict[str, int] = {}
    for content in wanted_sizes:
        peers = [peer for peer in hosts[name].peers if content in _wants(hosts[peer])]
        having = [peer for peer in peers if content not in lacks(hosts[peer])]
        # Content that no host has is fetched by the first host that needs it.
        earlier = [peer for peer in peers if order.index(peer) < order.index(name)]
        source = " or ".join(having) or next(iter(earlier), "the internet")
        counts[source] = counts.get(source, 0) + 1
    return ", ".join(f"{count} from {source}" for source, count in counts.items())


def _wants(host: EmptyHost) -> list[str]:
    return [*checkpoints_of(host.desired_state.plan), *images_of(host.desired_state.plan)]


def _keys(name: str, host: EmptyHost, hosts: Mapping[str, EmptyHost]) -> Iterator[str]:
    files = {host_name: state.files for host_name, state in hosts.items()}
    givers: dict[str, list[str]] = {}
    for key in host.desired_state.shared_keys:
        giver = key.giving_host(files)
        if giver not in ("", name) and key.key_hash(files.get(giver)) is not None:
            givers.setdefault(giver, []).append(key.description)
    for giver, keys in givers.items():
        yield f"from {giver}: {', '.join(keys)}"


def _chats(host: EmptyHost) -> Iterator[str]:
    """Yield the place of a wiped host's chats."""
    plan = host.desired_state.plan
    if not (host.was_deployed and plan.settings.webui.enabled):
        return
    backup = plan.settings.backup
    peer = plan.backups.peer
    places = [*([peer.name] if peer else []), *(to for to in backup.to if to != PEER)]
    if backup.enabled and places:
        yield (
            f"chats: in its backups ({', '.join(map(str, places))}); "
            "`lockstep backup restore` brings them back (`lockstep help backup`)"
        )
    else:
        yield "chats: Open WebUI begins without any; no backup of them lies elsewhere"
