"""The real restic, with repositories that are cheap to make and to open: each costs restic seconds.

The proof is unchanged: the password still opens its repository, and no other does.
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

from lockstep.onhost.records.restic_client import ResticRepository

#: The least cost of a key that restic accepts.
_COST = {"N": 2, "r": 1, "p": 1}
#: Repositories that restic itself has made, one of each kind: settings, key file and its key.
_templates: dict[bool, tuple[bytes, dict[str, Any], bytes]] = {}


def open_cheaply(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every repository from now on cheap to make and to open."""
    run = ResticRepository._run

    def cheap(own: ResticRepository, *words: str, more: Mapping[str, str] | None = None) -> str:
        if words[0] != "init":
            return run(own, *words, more=more)
        place, password = Path(own.place), own.password.read_bytes().rstrip()
        try:
            for name in ("data", "index", "keys", "locks", "snapshots"):
                (place / name).mkdir(parents=True)
        except OSError:
            return run(own, *words, more=more)
        kind = more is not None
        if kind not in _templates:
            run(own, *words, more=more)
            _templates[kind] = _taken_out(place, password)
        _put_in(place, password, *_templates[kind])
        return ""

    monkeypatch.setattr(ResticRepository, "_run", cheap)


def _taken_out(place: Path, password: bytes) -> tuple[bytes, dict[str, Any], bytes]:
    [file] = (place / "keys").iterdir()
    key = json.loads(file.read_bytes())
    file.unlink()
    salt, ciphertext = (base64.b64decode(key[name]) for name in ("salt", "data"))
    cost = {name: key[name] for name in _COST}
    text = _apply_keystream(
        _derive_key(password, salt, **cost)[:32], ciphertext[:16], ciphertext[16:-16]
    )
    return (place / "config").read_bytes(), key, text


def _put_in(place: Path, password: bytes, settings: bytes, key: dict, text: bytes) -> None:
    """Seal the repository's only key anew; its file is named by its content."""
    salt, nonce = base64.b64decode(key["salt"]), secrets.token_bytes(16)
    new = _derive_key(password, salt, **_COST)
    text = _apply_keystream(new[:32], nonce, text)
    ciphertext = nonce + text + _signature(new[32:48], new[48:], nonce, text)
    whole = json.dumps({**key, **_COST, "data": base64.b64encode(ciphertext).decode()}).encode()
    (place / "keys" / hashlib.sha256(whole).hexdigest()).write_bytes(whole)
    (place / "config").unlink(missing_ok=True)
    (place / "config").write_bytes(settings)


def _derive_key(password: bytes, salt: bytes, N: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(password, salt=salt, n=N, r=r, p=p, maxmem=2**30, dklen=64)


def _apply_keystream(key: bytes, nonce: bytes, text: bytes) -> bytes:
    """Encrypt or decrypt by AES-256 as a stream."""
    return Cipher(algorithms.AES(key), modes.CTR(nonce)).encryptor().update(text)


def _signature(k: bytes, r: bytes, nonce: bytes, text: bytes) -> bytes:
    """The Poly1305-AES signature."""
    s = Cipher(algorithms.AES(k), modes.ECB()).encryptor().update(nonce)
    return Poly1305.generate_tag(r + s, text)
