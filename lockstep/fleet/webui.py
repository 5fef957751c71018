"""Copies of Open WebUI's data on the Sparks of an inventory that fit the image of a lock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lockstep.files.managed_file import command
from lockstep.fleet.hosts import Host, ask, at_once
from lockstep.lock.image_reference import pull_reference
from lockstep.lock.pins import Pins

_LIMIT_S = 60.0


@dataclass(frozen=True)
class Fitting:
    """What one Spark has.

    Attributes:
        host: It.
        image: The image that the lock gives it.
        number: Of the newest copy from before another image replaced that one; None: it has none.
        date: When that was made.
        generation: The generation of the host then.
        chats: Chats that were begun or continued since; None: not known.
        fault: Why nothing is known; "" where it is.
    """

    host: Host
    image: str = ""
    number: int | None = None
    date: str = ""
    generation: int = 0
    chats: int | None = None
    fault: str = ""

    @property
    def loss(self) -> str:
        """What its present data have that the copy lacks, in words."""
        if self.chats is None:
            return "what was written since is not in it"
        return f"{self.chats} chat(s) that were begun or continued since are not in it"


def fitting(hosts: Sequence[Host], pins: Pins) -> list[Fitting]:
    """Each host whose Open WebUI would get another image by `pins`, all asked at once."""
    found = at_once(lambda host: _fitting(host, pins), hosts)
    return [each for each in found if each]


def use(each: Fitting) -> str:
    """Have the image begin with its copy when a deploy brings it; why that failed, or ""."""
    argv = ["sudo", "-n", *command("webui", "use", each.image, str(each.number))]
    answer = ask(each.host.login, argv, limit_s=_LIMIT_S)
    return answer.fault or (answer.said if answer.code else "")


def _fitting(host: Host, pins: Pins) -> Fitting | None:
    webui = host.plan.settings.webui
    pin = pins.images.get(webui.image)
    if not webui.enabled or pin is None:
        return None
    image = pull_reference(webui.image, pin)
    argv = ["sudo", "-n", *command("webui", "snapshots", webui.volume)]
    answer, fault = ask(host.login, argv, limit_s=_LIMIT_S).json()
    if fault:
        return Fitting(host, image, fault=fault)
    if answer["image"] in ("", image):
        return None
    for each in answer["snapshots"]:
        if each["image"] == image:
            named = (each["number"], each["date"], each["generation"], each["chats_since"])
            return Fitting(host, image, *named)
    return Fitting(host, image)
