"""The copies of a deploy: possible sources for each Spark, its downloads, and the token."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lockstep.host.specs import engine_content
from lockstep.inventory.host import HostPlan, checkpoints_of, images_of
from lockstep.lock.image_reference import pull_reference
from lockstep.lock.pins import Pins
from lockstep.preflight import ENGINE
from lockstep.system.folders import IMAGE_STORE, engine_store

#: The claim under which `fetch_weights` fetches.
WEIGHTS = "weights"


@dataclass(frozen=True)
class CopyingHost:
    """One host of a run.

    Attributes:
        plan: Its plan.
        facts: The answer of the reader `preflight`.
        address: The address for its peers: an IP address, or a name that they know.
    """

    plan: HostPlan
    facts: Mapping[str, Any]
    address: str


def leases(members: Sequence[CopyingHost], pins: Pins) -> dict[str, dict[str, Any]]:
    """Return by host the settings of its copying; {} if there is nothing to copy or no peer.

    Each run has a token of its own, which is in no command line and no log. Hosts stand in
    inventory order. The first host that needs absent content fetches it, and the others wait.
    """
    if len(members) < 2:
        return {}
    expected_parts = [dict(expects(member.plan, pins, member.facts)) for member in members]
    if not any(expected_parts):
        return {}
    token, run = secrets.token_urlsafe(32), secrets.token_hex(8)
    return {
        member.plan.name: {
            "id": run,
            "token": token,
            "address": member.address,
            "port": member.plan.settings.copy_port,
            "user": member.plan.settings.service_user,
            "hub": f"{member.plan.settings.paths.hub_cache}/hub",
            "flat": [IMAGE_STORE, engine_store(member.plan.settings)],
            "expects": expected_parts[rank],
            "peers": [
                {
                    "name": peer.plan.name,
                    "address": peer.address,
                    "port": peer.plan.settings.copy_port,
                    "earlier": at < rank,
                }
                for at, peer in enumerate(members)
                if at != rank
            ],
        }
        for rank, member in enumerate(members)
    }


def expects(
    plan: HostPlan, pins: Pins, facts: Mapping[str, Any]
) -> Iterator[tuple[str, list[str]]]:
    """Yield the content that a host will fetch: the fetching program's claim, and the hashes.

    `facts` is the answer of the reader `preflight` on that host.
    """
    if ENGINE in facts["lacking"]:
        # The claims have the names that `build_inputs.py` uses on the host.
        for stage, contents in engine_content(plan, pins).items():
            yield f"engine-{stage}", contents
    names = [
        name
        for checkpoint in checkpoints_of(plan)
        for name in pins.checkpoints[checkpoint].absent(facts["checkpoints"][checkpoint])
    ]
    if names:
        yield WEIGHTS, list(dict.fromkeys(names))
    for image in images_of(plan):
        pin = pins.images[image]
        if pull_reference(image, pin) not in facts["docker"]["images"]:
            digest = pin.digest.removeprefix("sha256:")
            yield f"image-{digest[:12]}", [digest]
