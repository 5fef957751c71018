"""Persons' keys: the right to use the gateway, and to switch models from it.

keys.json holds one entry for each person, with the SHA-256 of the key. A key has 256 random bits,
so a slow hash would add no protection.
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
from lockstep.onhost.core.schema import Rule, pattern_rule

#: The keys of a host; readable by the group, writable by root alone.
PATH = Path("/etc/lockstep/gateway/keys.json")
ACCOUNT = "lockstep-gateway"  #: The account, and group, that the gateway runs as.
LOCAL = "local"  #: Name of clients on the host itself, without a key.
HOST_KEY = "host-key"  #: Name of clients with the key of the host's open ports.
#: Prefix of each key, by which people and scanners recognise leaked secrets.
PREFIX = "lk-"

Role = Literal["use", "operate"]
ROLES = ("use", "operate")
Now = Callable[[], datetime.datetime]

_PERSON = re.compile(r"[a-z0-9][a-z0-9._@-]{0,63}")
_TIME = "%Y-%m-%dT%H:%M:%SZ"


def is_time(text: str) -> bool:
    """Tell whether a text is a time as `format_utc` writes it: such texts sort like times."""
    try:
        return format_utc(datetime.datetime.strptime(text, _TIME)) == text
    except ValueError:
        return False


def is_day(text: str) -> bool:
    """Tell whether a text is a day in the form YYYY-MM-DD."""
    try:
        return datetime.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def format_utc(time: datetime.datetime) -> str:
    """Format a time in UTC as in keys.json."""
    return time.strftime(_TIME)


def utc_now() -> datetime.datetime:
    """Return the time now, in UTC."""
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
_Digest = Annotated[str, pattern_rule("[0-9a-f]{64}", "is no SHA-256", "")]
_Time = Annotated[str, Rule("is not a time in UTC", is_time, "YYYY-MM-DDTHH:MM:SSZ")]


@dataclass(frozen=True)
class Entry:
    """The last change of one person's key."""

    person: Name  #: The owner of the key.
    since: _Time  #: Time of the change, UTC. Of two Sparks' entries the later one is valid.
    #: Digest of the key, in hexadecimal digits; None if revoked. A revoked key stays on record, so
    #: that a Spark that was away can't bring it back.
    sha256: _Digest | None = None
    role: Role = "use"  #: `use` asks models, `operate` switches them too.
    until: _Day | None = None  #: Last day on which it is valid, UTC; None without end.

    def is_valid(self, now: datetime.datetime) -> bool:
        """Tell whether the key is valid at a time."""
        is_expired = self.until is not None and now.date().isoformat() > self.until
        return self.sha256 is not None and not is_expired

    @property
    def age_sort_key(self) -> tuple[str, bool, str]:
        """Sort key for entries of one person.

        Of two changes at one time a revocation is the later.
        """
        return (self.since, self.sha256 is None, self.sha256 or "")


@dataclass(frozen=True)
class Person:
    """An authenticated person and their role."""

    name: str
    role: Role


class BrokenKeys(Exception):
    """An unusable keys.json, or input in its form."""


def new_key() -> str:
    """Make a new key of 256 random bits."""
    return PREFIX + secrets.token_urlsafe(32)


def key_digest(key: bytes) -> str:
    """Return the digest of a key, as entries hold it."""
    return hashlib.sha256(key).hexdigest()


def keys_in_headers(headers: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
    """Return the keys that a request carries, in OpenAI's and in Anthropic's header."""
    carried_keys = []
    for name, value in headers:
        if name == b"authorization":
            scheme, _, value = value.partition(b" ")
            if scheme.lower() != b"bearer":
                continue
        elif name != b"x-api-key":
            continue
        if value.strip():
            carried_keys.append(value.strip())
    return carried_keys


def has_key_of_our_form(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Tell whether a request carries anything in the form of a person's key.

    Many programs insist on a key. Where none is required, people enter a word such as "none".
    """
    return any(key.startswith(PREFIX.encode()) for key in keys_in_headers(headers))


def entries_of_text(text: str, where: str) -> list[Entry]:
    """Parse entries from JSON text; raise `BrokenKeys` if it, or `parse_entries`, fails."""
    try:
        return parse_entries(json.loads(text), where)
    except ValueError as error:
        raise BrokenKeys(f"{where}: expected a JSON document with the list `keys`") from error


def parse_entries(document: Any, where: str) -> list[Entry]:
    """Parse entries from what `entries_document` makes; raise `BrokenKeys` if invalid."""
    try:
        entries = document["keys"]
    except (LookupError, TypeError) as error:
        raise BrokenKeys(f"{where}: expected a JSON document with the list `keys`") from error
    entries_found = schema.convert(
        tuple[Entry, ...], entries, where=where, key="keys", error=_broken_error
    )
    if len({entry.person for entry in entries_found}) < len(entries_found):
        raise BrokenKeys(f"{where}: two entries of one person")
    return list(entries_found)


def entries_document(entries: Iterable[Entry]) -> dict[str, Any]:
    """Return entries by person, in the form that `parse_entries` reads."""
    return {
        "keys": [
            asdict(entry) for entry in sorted(entries, key=lambda entry_given: entry_given.person)
        ]
    }


def _broken_error(summary: str, *, where: str, allowed: str = "", **_: str) -> BrokenKeys:
    # The value is not repeated: it may be a key that somebody put there by hand.
    return BrokenKeys(f"{where}: {schema.fault_sentence(summary, '', allowed)}")


@dataclass
class Keys:
    """The keys of one host, reloaded when their file changes; without the file nobody has one."""

    path: Path = PATH
    now: Now = utc_now
    _file_state: object = field(default=None, init=False)
    _entries: list[Entry] = field(default_factory=list, init=False)

    def person_of(self, headers: Iterable[tuple[bytes, bytes]]) -> Person | None:
        """Return the person of a request's key; None without a key that is known and valid."""
        self._reload_changed_file()
        now, person = self.now(), None
        for key in keys_in_headers(headers):
            key_hash = key_digest(key)
            for entry in self._entries:
                # Compare every digest in constant time, so that timing reveals nothing.
                if hmac.compare_digest(key_hash, entry.sha256 or "") and entry.is_valid(now):
                    person = person or Person(entry.person, entry.role)
        return person

    def _reload_changed_file(self) -> None:
        """Reload the file if it is another one than last time.

        It is replaced as a whole, so changed content is always a new file.
        """
        try:
            file_state = self.path.stat()
            mark: object = (file_state.st_ino, file_state.st_mtime_ns, file_state.st_size)
        except FileNotFoundError:
            mark = "none"
        except OSError as error:
            mark = errors.why(error)
        if mark == self._file_state:
            return
        self._file_state, self._entries = mark, []
        if mark == "none":
            return
        try:
            self._entries = entries_of_text(self.path.read_text(encoding="utf-8"), str(self.path))
        except (BrokenKeys, OSError, UnicodeDecodeError) as error:
            why = (
                str(error) if isinstance(error, BrokenKeys) else f"{self.path}: {errors.why(error)}"
            )
            remedy = "move the file away, and run `lockstep key list --fix`"
            write_to_stderr(f"{why}. Every key is refused. Remedy: {remedy}")


def write_to_stderr(message: str) -> None:
    """Write one line of the gateway's to standard error."""
    print(f"lockstep gateway: {message}", file=sys.stderr, flush=True)
