"""The real restic, with repositories that are cheap to make and to open: each costs it seconds.

What is proved with them is unchanged: the password still opens its repository, and no other does.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.poly1305 import Poly1305

from lockstep.onhost.records.restic import Repository

#: The least that restic takes.
_COST = {"N": 2, "r": 1, "p": 1}
#: What restic itself has made once, in its two ways: settings, key file and the key in it.
_made: dict[bool, tuple[bytes, dict[str, Any], bytes]] = {}


def open_cheaply(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every repository that is made from here on be cheap to make and to open."""
    run = Repository._run

    def cheap(own: Repository, *words: str, more: Mapping[str, str] | None = None) -> str:
        if words[0] != "init":
            return run(own, *words, more=more)
        place, password = Path(own.place), own.password.read_bytes().rstrip()
        try:
            for name in ("data", "index", "keys", "locks", "snapshots"):
                (place / name).mkdir(parents=True)
        except OSError:
            return run(own, *words, more=more)
        kind = more is not None
        if kind not in _made:
            run(own, *words, more=more)
            _made[kind] = _taken_out(place, password)
        _put_in(place, password, *_made[kind])
        return ""

    monkeypatch.setattr(Repository, "_run", cheap)


def _taken_out(place: Path, password: bytes) -> tuple[bytes, dict[str, Any], bytes]:
    [file] = (place / "keys").iterdir()
    key = json.loads(file.read_bytes())
    file.unlink()
    salt, sealed = (base64.b64decode(key[name]) for name in ("salt", "data"))
    cost = {name: key[name] for name in _COST}
    text = _counted(_derived(password, salt, **cost)[:32], sealed[:16], sealed[16:-16])
    return (place / "config").read_bytes(), key, text


def _put_in(
    place: Path, password: bytes, settings: bytes, key: dict[str, Any], text: bytes
) -> None:
    """Seal the repository's only key anew; its file is named by its content."""
    salt, nonce = base64.b64decode(key["salt"]), secrets.token_bytes(16)
    new = _derived(password, salt, **_COST)
    text = _counted(new[:32], nonce, text)
    sealed = nonce + text + _signed(new[32:48], new[48:], nonce, text)
    whole = json.dumps({**key, **_COST, "data": base64.b64encode(sealed).decode()}).encode()
    (place / "keys" / hashlib.sha256(whole).hexdigest()).write_bytes(whole)
    (place / "config").unlink(missing_ok=True)
    (place / "config").write_bytes(settings)


def _derived(password: bytes, salt: bytes, N: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(password, salt=salt, n=N, r=r, p=p, maxmem=2**30, dklen=64)


def _counted(key: bytes, nonce: bytes, text: bytes) -> bytes:
    """AES-256 as a stream, which hides and shows alike."""
    return Cipher(algorithms.AES(key), modes.CTR(nonce)).encryptor().update(text)


def _signed(k: bytes, r: bytes, nonce: bytes, text: bytes) -> bytes:
    """Poly1305-AES."""
    s = Cipher(algorithms.AES(k), modes.ECB()).encryptor().update(nonce)
    return Poly1305.generate_tag(r + s, text)
