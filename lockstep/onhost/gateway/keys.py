"""Keys of persons: who may use the gateway, and who may switch from it.

keys.json holds one entry for each person, with the SHA-256 of the key. A key has 256 random bits,
so a slow hash would protect nothing more.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import json
import re
import secrets
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from lockstep.onhost.core import errors, schema
from lockstep.onhost.core.schema import Rule, like

#: Where the keys are on a host; the group may read them, root alone may write them.
PATH = Path("/etc/lockstep/gateway/keys.json")
ACCOUNT = "lockstep-gateway"  #: The account, and group, that the gateway runs as.
LOCAL = "local"  #: Who asks from the host itself, without a key.
HOST_KEY = "host-key"  #: Who asks with the key of the host's open ports.
#: Begins each key, so that people and programs that look for leaked secrets know it.
PREFIX = "lk-"

Role = Literal["use", "operate"]
ROLES = ("use", "operate")
Now = Callable[[], datetime.datetime]

_PERSON = re.compile(r"[a-z0-9][a-z0-9._@-]{0,63}")
_TIME = "%Y-%m-%dT%H:%M:%SZ"


def is_time(text: str) -> bool:
    """Whether it is a time as `stamp` writes it. Only then the order of texts is that of times."""
    return stamp(datetime.datetime.strptime(text, _TIME)) == text


def is_day(text: str) -> bool:
    """Whether it is a day in the form YYYY-MM-DD. ValueError for most that are not."""
    return datetime.date.fromisoformat(text).isoformat() == text


def stamp(time: datetime.datetime) -> str:
    """A time in UTC as keys.json has it."""
    return time.strftime(_TIME)


def utc() -> datetime.datetime:
    """The time now."""
    return datetime.datetime.now(datetime.UTC)


Name = Annotated[
    str,
    Rule(
        "is no name of a person",
        lambda name: _PERSON.fullmatch(name) and name not in (LOCAL, HOST_KEY),
        'up to 64 of a-z, 0-9, ".", "_", "@" and "-", not "local" or "host-key"',
    ),
]
_Day = Annotated[str, Rule("is not a day", is_day, "YYYY-MM-DD")]
_Digest = Annotated[str, like("[0-9a-f]{64}", "is no SHA-256", "")]
_Time = Annotated[str, Rule("is not a time in UTC", is_time, "YYYY-MM-DDTHH:MM:SSZ")]


@dataclass(frozen=True)
class Entry:
    """The last change of one person's key."""

    person: Name  #: Whose it is.
    since: _Time  #: Time of the change, UTC. Of two Sparks' entries the later one is right.
    #: Digest of the key, in hexadecimal digits; None: it is revoked. What is revoked stays on
    #: record, so that a Spark that was away can't bring the key back.
    sha256: _Digest | None = None
    role: Role = "use"  #: `use` asks models, `operate` switches them too.
    until: _Day | None = None  #: Last day on which it is valid, UTC; None: no end.

    def valid(self, now: datetime.datetime) -> bool:
        """Whether the key is in force."""
        expired = self.until is not None and now.date().isoformat() > self.until
        return self.sha256 is not None and not expired

    @property
    def age(self) -> tuple[str, bool, str]:
        """Orders entries of one person. Of two changes at one time a revocation is the later."""
        return (self.since, self.sha256 is None, self.sha256 or "")


@dataclass(frozen=True)
class Person:
    """Who asks."""

    name: str
    role: Role


class Broken(Exception):
    """keys.json, or what came in its form, cannot be used."""


def new_key() -> str:
    """A new key: 256 random bits."""
    return PREFIX + secrets.token_urlsafe(32)


def digest(key: bytes) -> str:
    """The digest of a key, as an entry has it."""
    return hashlib.sha256(key).hexdigest()


def given(headers: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
    """The keys that a request carries: as OpenAI's clients send them, and as Anthropic's do."""
    found = []
    for name, value in headers:
        if name == b"authorization":
            scheme, _, value = value.partition(b" ")
            if scheme.lower() != b"bearer":
                continue
        elif name != b"x-api-key":
            continue
        if value.strip():
            found.append(value.strip())
    return found


def claimed(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a request carries what looks like a person's key.

    Many programs insist on a key. Where none is asked for, people give them a word like "none".
    """
    return any(key.startswith(PREFIX.encode()) for key in given(headers))


def loaded(text: str, where: str) -> list[Entry]:
    """The entries of a text in JSON. Broken where it is none, or `parsed` says so."""
    try:
        return parsed(json.loads(text), where)
    except ValueError as error:
        raise Broken(f"{where}: expected a JSON document with the list `keys`") from error


def parsed(document: Any, where: str) -> list[Entry]:
    """The entries of a document as `document` makes it. Broken where it is another."""
    try:
        entries = document["keys"]
    except (LookupError, TypeError) as error:
        raise Broken(f"{where}: expected a JSON document with the list `keys`") from error
    found = schema.convert(tuple[Entry, ...], entries, where=where, key="keys", error=_broken)
    if len({entry.person for entry in found}) < len(found):
        raise Broken(f"{where}: two entries of one person")
    return list(found)


def document(entries: Iterable[Entry]) -> dict[str, Any]:
    """Entries for `parsed`, by person."""
    return {"keys": [asdict(entry) for entry in sorted(entries, key=lambda each: each.person)]}


def _broken(what: str, *, where: str, allowed: str = "", **_: str) -> Broken:
    # What was found is not told: it may be a key, put there by hand.
    return Broken(f"{where}: {schema.sentence(what, '', allowed)}")


@dataclass
class Keys:
    """The keys of one host, read again when their file has changed; without it nobody has one."""

    path: Path = PATH
    now: Now = utc
    _seen: object = field(default=None, init=False)
    _entries: list[Entry] = field(default_factory=list, init=False)

    def who(self, headers: Iterable[tuple[bytes, bytes]]) -> Person | None:
        """Whose key a request carries; None for none, an unknown, an expired or a revoked one."""
        self._look()
        now, found = self.now(), None
        for key in given(headers):
            asked = digest(key)
            for entry in self._entries:
                # Every digest is compared, and in constant time: how long it takes tells nothing.
                if hmac.compare_digest(asked, entry.sha256 or "") and entry.valid(now):
                    found = found or Person(entry.person, entry.role)
        return found

    def _look(self) -> None:
        """Read the file where it is another one than last time.

        It is replaced as a whole, so another content is another file.
        """
        try:
            seen = self.path.stat()
            mark: object = (seen.st_ino, seen.st_mtime_ns, seen.st_size)
        except FileNotFoundError:
            mark = "none"
        except OSError as error:
            mark = errors.why(error)
        if mark == self._seen:
            return
        self._seen, self._entries = mark, []
        if mark == "none":
            return
        try:
            self._entries = loaded(self.path.read_text(encoding="utf-8"), str(self.path))
        except (Broken, OSError, UnicodeDecodeError) as error:
            why = str(error) if isinstance(error, Broken) else f"{self.path}: {errors.why(error)}"
            remedy = "move the file away, and run `lockstep key list --fix`"
            tell(f"{why}. Every key is refused. Remedy: {remedy}")


def tell(what: str) -> None:
    """One line of the gateway's on standard error."""
    print(f"lockstep gateway: {what}", file=sys.stderr, flush=True)
