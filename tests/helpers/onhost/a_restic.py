"""The real restic, with repositories that are cheap to make and to open: each costs restic seconds.

The proof is unchanged: the password still opens its repository, and no other does.
"""

import base64
import hashlib
import json
import secrets
from collections.abc import Mapping
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.poly1305 import Poly1305

from lockstep.onhost.records.restic_client import ResticRepository

#: Kinds of repositories of which restic itself has made one in this process.
_made_by_restic: set[bool] = set()


def open_cheaply(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every repository from now on cheap to make and to open, but for one of each kind."""
    run = ResticRepository._run

    def cheap(own: ResticRepository, *words: str, more: Mapping[str, str] | None = None) -> str:
        is_copy = more is not None
        if words[0] != "init" or is_copy not in _made_by_restic:
            if words[0] == "init":
                _made_by_restic.add(is_copy)
            return run(own, *words, more=more)
        try:
            for name in ("data", "index", "keys", "locks", "snapshots"):
                (Path(own.place) / name).mkdir(parents=True)
        except OSError:
            return run(own, *words, more=more)
        _make(Path(own.place), own.password.read_bytes().rstrip())
        return ""

    monkeypatch.setattr(ResticRepository, "_run", cheap)


def _make(place: Path, password: bytes) -> None:
    """Write settings and the only key, of the least cost that restic accepts."""
    master, salt, cost = secrets.token_bytes(64), secrets.token_bytes(64), {"N": 2, "r": 1, "p": 1}
    encrypt, k, r = (_base64(part) for part in (master[:32], master[32:48], master[48:]))
    of_password = hashlib.scrypt(password, salt=salt, n=2, r=1, p=1, dklen=64)
    text = _seal(of_password, {"mac": {"k": k, "r": r}, "encrypt": encrypt})
    key = {"kdf": "scrypt", **cost, "salt": _base64(salt), "data": _base64(text)}
    whole = json.dumps({"created": "2026-11-01T00:00:00Z", **key}).encode()
    (place / "keys" / hashlib.sha256(whole).hexdigest()).write_bytes(whole)
    settings = {"version": 2, "id": secrets.token_hex(32), "chunker_polynomial": "3da3358b4dc173"}
    (place / "config").write_bytes(_seal(master, settings))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _seal(key: bytes, document: object) -> bytes:
    """Encrypt by AES-256 as a stream, and sign by Poly1305-AES."""
    nonce = secrets.token_bytes(16)
    stream = Cipher(algorithms.AES(key[:32]), modes.CTR(nonce)).encryptor()
    text = stream.update(json.dumps(document).encode())
    once = Cipher(algorithms.AES(key[32:48]), modes.ECB()).encryptor().update(nonce)
    return nonce + text + Poly1305.generate_tag(key[48:] + once, text)
