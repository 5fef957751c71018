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
    """The copy of one Spark's Open WebUI data that fits the image of the lock.

    Attributes:
        host: The Spark.
        image: The image that the lock gives the Spark.
        number: Number of the newest copy from before another image replaced that one; None: no
            copy.
        date: Date of that copy.
        generation: The host's generation at that time.
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
        """The present data that the copy lacks, in words."""
        if self.chats is None:
            return "what was written since is not in it"
        return f"{self.chats} chat(s) that were begun or continued since are not in it"


def fitting(hosts: Sequence[Host], pins: Pins) -> list[Fitting]:
    """Return each host whose Open WebUI would get another image by `pins`, all asked at once."""
    copies = at_once(lambda host: _fitting(host, pins), hosts)
    return [fitting_copy for fitting_copy in copies if fitting_copy]


def use(fitting_copy: Fitting) -> str:
    """Have the image begin with its copy when a deploy brings it; return why that failed, or ""."""
    argv = ["sudo", "-n", *command("webui", "use", fitting_copy.image, str(fitting_copy.number))]
    answer = ask(fitting_copy.host.login, argv, limit_s=_LIMIT_S)
    return answer.fault or (answer.error_text if answer.code else "")


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
    for snapshot in answer["snapshots"]:
        if snapshot["image"] == image:
            copy_fields = (
                snapshot["number"],
                snapshot["date"],
                snapshot["generation"],
                snapshot["chats_since"],
            )
            return Fitting(host, image, *copy_fields)
    return Fitting(host, image)
