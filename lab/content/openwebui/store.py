"""Users and persistent settings, in one SQLite file as in the real program."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Mapping
from pathlib import Path

#: Settings that are read from the environment once and from the database ever after, unless
#: ENABLE_PERSISTENT_CONFIG is false: changing the variable later changes nothing.
PERSISTENT = ("ENABLE_SIGNUP", "OPENAI_API_BASE_URLS", "OPENAI_API_KEYS", "WEBUI_URL")


class Store:
    """The database ``webui.db`` in the data folder; safe to share among threads."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._db = sqlite3.connect(folder / "webui.db", check_same_thread=False)
        with self._db:
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS user "
                "(email TEXT PRIMARY KEY, name TEXT, role TEXT, salt TEXT, password TEXT, at REAL)"
            )
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS config (name TEXT PRIMARY KEY, value TEXT)"
            )
        persistent = environment.get("ENABLE_PERSISTENT_CONFIG", "true").lower() != "false"
        for name in PERSISTENT:
            value = _from_environment(name, environment)
            if value is not None:
                self._remember(name, value, replace=not persistent)
        email = environment.get("WEBUI_ADMIN_EMAIL")
        password = environment.get("WEBUI_ADMIN_PASSWORD")
        if email and password and not self.users():
            self.add(email, environment.get("WEBUI_ADMIN_NAME", "Admin"), password, "admin")
            self._remember("ENABLE_SIGNUP", "false", replace=True)

    def _remember(self, name: str, value: str, *, replace: bool) -> None:
        verb = "REPLACE" if replace else "IGNORE"
        with self._lock, self._db:
            statement = "INSERT OR " + verb + " INTO config VALUES (?, ?)"
            self._db.execute(statement, (name, json.dumps(value)))

    def setting(self, name: str, default: str = "") -> str:
        """A persistent setting, or the default if it was never given."""
        with self._lock:
            row = self._db.execute("SELECT value FROM config WHERE name = ?", (name,)).fetchone()
        return str(json.loads(row[0])) if row else default

    def users(self) -> list[tuple[str, str]]:
        """Email and role of every user, in the order of their making."""
        with self._lock:
            rows = self._db.execute("SELECT email, role FROM user ORDER BY at").fetchall()
        return [(str(email), str(role)) for email, role in rows]

    def add(self, email: str, name: str, password: str, role: str) -> None:
        """Add a user. ``sqlite3.IntegrityError`` when the address is taken."""
        salt = secrets.token_hex(8)
        row = (email.lower(), name, role, salt, _hashed(salt, password), time.time())
        with self._lock, self._db:
            self._db.execute("INSERT INTO user VALUES (?, ?, ?, ?, ?, ?)", row)

    def role_of(self, email: str, password: str) -> str | None:
        """The user's role, or ``None`` when address or password is wrong."""
        query = "SELECT role, salt, password FROM user WHERE email = ?"
        with self._lock:
            row = self._db.execute(query, (email.lower(),)).fetchone()
        return str(row[0]) if row and row[2] == _hashed(row[1], password) else None


def _hashed(salt: str, password: str) -> str:
    return hashlib.scrypt(password.encode(), salt=salt.encode(), n=1024, r=8, p=1).hex()


def _from_environment(name: str, environment: Mapping[str, str]) -> str | None:
    singular = {"OPENAI_API_BASE_URLS": "OPENAI_API_BASE_URL", "OPENAI_API_KEYS": "OPENAI_API_KEY"}
    return environment.get(name) or environment.get(singular.get(name, name))


def secret_key(folder: Path, environment: Mapping[str, str]) -> str:
    """The key that signs sessions: given, or made once beside the data as start.sh does."""
    if given := environment.get("WEBUI_SECRET_KEY"):
        return given
    file = folder.parent / ".webui_secret_key"
    if not file.exists():
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "w") as handle:
            handle.write(secrets.token_hex(16))
    return file.read_text()
