"""The copies of a deploy: possible sources for each Spark, its downloads, and the token."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lockstep.host.specs import engine_content
from lockstep.inventory.host import HostPlan, images_of, models_of
from lockstep.lock.image_reference import pull_reference
from lockstep.lock.pins import Pins
from lockstep.preflight import ENGINE
from lockstep.system.folders import IMAGE_STORE, engine_store

#: The claim under which `fetch_weights` fetches.
WEIGHTS = "weights"


@dataclass(frozen=True)
class Member:
    """One host of a run.

    Attributes:
        plan: Its plan.
        facts: What the reader `preflight` answered.
        address: Where its peers reach it: an IP address, or a name that they know.
    """

    plan: HostPlan
    facts: Mapping[str, Any]
    address: str


def leases(members: Sequence[Member], pins: Pins) -> dict[str, dict[str, Any]]:
    """Host → what `sharing open` is told there; {} where there is nothing to copy or nobody.

    Each run has a token of its own, which is in no command line and no log. Hosts stand in
    inventory order: what no host has is fetched by the first that needs it, the others wait.
    """
    if len(members) < 2:
        return {}
    expected = [dict(expects(member.plan, pins, member.facts)) for member in members]
    if not any(expected):
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
            "expects": expected[rank],
            "peers": [
                {
                    "name": other.plan.name,
                    "address": other.address,
                    "port": other.plan.settings.copy_port,
                    "earlier": at < rank,
                }
                for at, other in enumerate(members)
                if at != rank
            ],
        }
        for rank, member in enumerate(members)
    }


def expects(
    plan: HostPlan, pins: Pins, facts: Mapping[str, Any]
) -> Iterator[tuple[str, list[str]]]:
    """What a host will have to fetch: claim of the program that will → hashes of content.

    `facts` are what the reader `preflight` answered there.
    """
    if ENGINE in facts["lacking"]:
        # As `engine_content.py` on the host calls them.
        for stage, contents in engine_content(plan, pins).items():
            yield f"engine-{stage}", contents
    names = [
        name
        for model in models_of(plan)
        for name in pins.models[model].absent(facts["models"][model])
    ]
    if names:
        yield WEIGHTS, list(dict.fromkeys(names))
    for image in images_of(plan):
        pin = pins.images[image]
        if pull_reference(image, pin) not in facts["docker"]["images"]:
            digest = pin.digest.removeprefix("sha256:")
            yield f"image-{digest[:12]}", [digest]
