"""The real restic, with keys that are cheap to open: each of its own costs it half a second.

What is proved with them is unchanged: the password still opens its repository, and no other does.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.poly1305 import Poly1305

from lockstep.onhost.records.restic import Repository

#: The least that restic takes.
_COST = {"N": 2, "r": 1, "p": 1}


def open_cheaply(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every repository that is made from here on be cheap to open."""
    made = Repository._run

    def run(own: Repository, *words: str, more: Mapping[str, str] | None = None) -> str:
        said = made(own, *words, more=more)
        if words[0] == "init":
            _make_cheap(Path(own.place), own.password.read_bytes().rstrip())
        return said

    monkeypatch.setattr(Repository, "_run", run)


def _make_cheap(place: Path, password: bytes) -> None:
    """Seal the repository's only key anew; its file is named by its content."""
    [file] = (place / "keys").iterdir()
    key = json.loads(file.read_bytes())
    salt, sealed = (base64.b64decode(key[name]) for name in ("salt", "data"))
    nonce, text = sealed[:16], sealed[16:-16]
    old, new = (_derived(password, salt, **cost) for cost in (_cost_of(key), _COST))
    text = _counted(new[:32], nonce, _counted(old[:32], nonce, text))
    sealed = nonce + text + _signed(new[32:48], new[48:], nonce, text)
    whole = json.dumps({**key, **_COST, "data": base64.b64encode(sealed).decode()}).encode()
    file.unlink()
    file.with_name(hashlib.sha256(whole).hexdigest()).write_bytes(whole)


def _cost_of(key: Mapping[str, int]) -> dict[str, int]:
    return {name: key[name] for name in _COST}


def _derived(password: bytes, salt: bytes, N: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(password, salt=salt, n=N, r=r, p=p, maxmem=2**30, dklen=64)


def _counted(key: bytes, nonce: bytes, text: bytes) -> bytes:
    """AES-256 as a stream, which hides and shows alike."""
    return Cipher(algorithms.AES(key), modes.CTR(nonce)).encryptor().update(text)


def _signed(k: bytes, r: bytes, nonce: bytes, text: bytes) -> bytes:
    """Poly1305-AES."""
    s = Cipher(algorithms.AES(k), modes.ECB()).encryptor().update(nonce)
    return Poly1305.generate_tag(r + s, text)
