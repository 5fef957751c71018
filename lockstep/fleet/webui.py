"""Copies of Open WebUI's data on the Sparks of an inventory that fit an older image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lockstep.files.managed_file import command
from lockstep.fleet.hosts import Host, ask, at_once

_LIMIT_S = 60.0


@dataclass(frozen=True)
class Fitting:
    """The copy of one Spark's Open WebUI data that fits the image which it returns to.

    Attributes:
        host: The Spark.
        image: That image.
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


def fitting(hosts: Sequence[Host], images: Mapping[str, str]) -> list[Fitting]:
    """Return each host whose Open WebUI would get another image; all are asked at once.

    Args:
        hosts: The hosts.
        images: Host → the image which it returns to, "" for none.
    """
    copies = at_once(lambda host: _fitting(host, images[host.name]), hosts)
    return [fitting_copy for fitting_copy in copies if fitting_copy]


def _fitting(host: Host, image: str) -> Fitting | None:
    if not image:
        return None
    argv = ["sudo", "-n", *command("webui", "snapshots", host.plan.settings.webui.volume)]
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
