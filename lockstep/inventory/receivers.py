"""The receivers of alerts: a topic of ntfy, a webhook, or an address for e-mail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal
from urllib.parse import urlsplit

from lockstep.inventory import values
from lockstep.inventory.secret import Secret
from lockstep.onhost.core.schema import SchemaFault, pattern_rule

Way = Literal["ntfy", "webhook", "email"]
_URL = pattern_rule(
    r"https?://[^/\s@]+(/[\x21-\x7e]*)?",
    "is not an address to send to",
    "http://HOST… or https://HOST…, without a login",
    has_password=True,
)
_TOPIC = pattern_rule(
    r"https?://[^/\s@]+/[A-Za-z0-9_-]{1,64}",
    "is not the address of a topic",
    "https://ntfy.sh/TOPIC, without a login",
    has_password=True,
)
_SERVER = pattern_rule(
    r"(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:]+\]):\d{1,5}",
    "is not a mail server with its port",
    '"smtp.example.org:587"',
)


@dataclass(frozen=True)
class Receiver:
    """A receiver: one of `ntfy`, `webhook` and `email`, with what that way needs.

    Attributes:
        ntfy: Address of a topic; its server must be ntfy 2.14 or later.
        webhook: Address that gets Alertmanager's own JSON.
        token: Token for `ntfy` or `webhook`, sent as `Authorization: Bearer …`.
        email: Address that gets mail.
        smarthost: Mail server with its port.
        sender: Address that mail comes from.
        user: Account at the mail server; None: the server asks for none.
        password: Password of that account.
        starttls: Whether the mail server must speak TLS.
    """

    ntfy: Annotated[str, _TOPIC] | None = None
    webhook: Annotated[str, _URL] | None = None
    token: Secret | None = None
    email: values.Email | None = None
    smarthost: Annotated[str, _SERVER] | None = None
    sender: values.Email | None = None
    user: values.Printable | None = None
    password: Secret | None = None
    starttls: bool = True

    @property
    def way(self) -> Way:
        """The way by which the receiver is told."""
        return "ntfy" if self.ntfy else "webhook" if self.webhook else "email"

    @property
    def public_address(self) -> str:
        """The receiver's address up to the server's name: a topic is as good as a password."""
        parts = urlsplit(self.ntfy or self.webhook or "")
        return self.email or f"{parts.scheme}://{parts.netloc}"


def _refusal(receiver: Receiver) -> SchemaFault | None:
    ways = [way for way in ("ntfy", "webhook", "email") if getattr(receiver, way)]
    if len(ways) != 1:
        ways_text = " and ".join(ways) or "none of them"
        return SchemaFault("must name one way", ways_text, "one of ntfy, webhook and email")
    mail = ("smarthost", "sender", "user", "password")
    if receiver.email is None:
        foreign = [key for key in mail if getattr(receiver, key)]
    else:
        foreign = ["token"] if receiver.token else []
        if not (receiver.smarthost and receiver.sender):
            return SchemaFault("names no mail server", receiver.email, "smarthost and sender")
        if bool(receiver.user) != bool(receiver.password):
            return SchemaFault(
                "has half a login", receiver.email, "both user and password, or neither"
            )
    if foreign:
        return SchemaFault(f"has keys that {ways[0]} does not have", ", ".join(foreign))
    return None


#: One entry of `monitoring.tell`.
ReceiverEntry = Annotated[Receiver, _refusal]
