"""Who passes the door on loopback, and the one for other machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.onhost.core import atomic
from lockstep.onhost.gateway import access, keys
from lockstep.onhost.gateway.configuration import Door, Gateway
from lockstep.onhost.gateway.peers import Peers
from lockstep.onhost.gateway.wire.answers import Refused

KEY = keys.new_key()
HOST = (b"host", b"127.0.0.1:8090")


def caller(folder: Path, kind: str, *headers: tuple[bytes, bytes], **more: bool) -> str:
    """The person whom a door lets in; the status it refuses with."""
    entry = keys.Entry("anna", "2026-11-01T00:00:00Z", keys.digest(KEY.encode()))
    atomic.write_json(folder / "keys.json", keys.document([entry]))
    gateway = Gateway("spark-1", (), **more)  # type: ignore[arg-type]
    judge = access.Access(gateway, keys.Keys(folder / "keys.json"), Peers(gateway), None)
    try:
        return judge.caller(Door(kind, "0.0.0.0", 8090), list(headers)).person.name  # type: ignore[arg-type]
    except Refused as refused:
        return str(refused.status)


@pytest.mark.parametrize(
    ("header", "local", "elsewhere"),
    [
        ((b"accept", b"*/*"), "local", "401"),
        ((b"x-api-key", KEY.encode()), "anna", "anna"),
        ((b"authorization", b"Bearer " + KEY.encode()), "anna", "anna"),
        # What a program sends that insists on some key.
        ((b"authorization", b"Bearer none"), "local", "401"),
        ((b"x-api-key", b"sk-no-key-required"), "local", "401"),
        # Somebody's key that was revoked does not count as nobody's.
        ((b"authorization", b"Bearer " + keys.new_key().encode()), "401", "401"),
    ],
)
def test_whom_a_key_lets_in(
    tmp_path: Path, header: tuple[bytes, bytes], local: str, elsewhere: str
) -> None:
    assert caller(tmp_path, "local", HOST, header) == local
    assert caller(tmp_path, "open", HOST, header) == elsewhere
    keyed = caller(tmp_path, "local", HOST, header, local_keys=True)
    assert keyed == elsewhere


@pytest.mark.parametrize(
    "header",
    [
        (b"x-forwarded-for", b"10.0.0.9"),
        (b"forwarded", b"for=10.0.0.9"),
        (b"origin", b"https://evil.example"),
        (b"sec-fetch-site", b"cross-site"),
        (b"host", b"evil.example"),
    ],
)
def test_who_does_not_ask_from_here_needs_a_key(
    tmp_path: Path, header: tuple[bytes, bytes]
) -> None:
    assert caller(tmp_path, "local", HOST, header) in ("401", "403")
    assert caller(tmp_path, "local", HOST, header, (b"x-api-key", KEY.encode())) == "anna"
