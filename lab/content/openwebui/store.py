"""Users and persistent settings, in one SQLite file as in the real program."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sqlite3
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

#: Settings that are read from the environment once and from the database ever after, unless
#: ENABLE_PERSISTENT_CONFIG is false: changing the variable later changes nothing.
PERSISTENT = ("ENABLE_SIGNUP", "OPENAI_API_BASE_URLS", "OPENAI_API_KEYS", "WEBUI_URL")

#: Revisions of the database, each with the first version that knows it, and its migration. As with
#: the real program, no migration leads back.
REVISIONS = {
    "1a2b": ((0,), "CREATE TABLE chat (id TEXT PRIMARY KEY, user_id TEXT, title TEXT, chat TEXT)"),
    "3c4d": ((0, 12, 3), "ALTER TABLE chat ADD COLUMN updated_at BIGINT DEFAULT 0"),
    "5e6f": ((0, 12, 4), "ALTER TABLE chat ADD COLUMN meta TEXT DEFAULT '{}'"),
    "7a8b": ((0, 13, 0), "ALTER TABLE chat RENAME COLUMN meta TO details"),
}


class Store:
    """The database ``webui.db`` in the data folder; safe to share among threads."""

    def __init__(self, folder: Path, environment: Mapping[str, str], version: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._db = sqlite3.connect(folder / "webui.db", check_same_thread=False)
        self._migrate(tuple(int(part) for part in version.split(".")))
        if environment.get("STANDIN_BROKEN_UPDATE"):
            sys.exit("an error of this version, after it has migrated")
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

    def _migrate(self, version: tuple[int, ...]) -> None:
        """Bring an older database to this version's revision; a newer one ends the program."""
        with self._db:
            self._db.execute("CREATE TABLE IF NOT EXISTS alembic_version (version_num TEXT)")
        row = self._db.execute("SELECT version_num FROM alembic_version").fetchone()
        known_revisions = [name for name, (since, _) in REVISIONS.items() if since <= version]
        if row and row[0] not in known_revisions:
            sys.exit(f"Can't locate revision identified by '{row[0]}'")
        for name in known_revisions[known_revisions.index(row[0]) + 1 if row else 0 :]:
            with self._db:
                self._db.execute(REVISIONS[name][1])
                self._db.execute("DELETE FROM alembic_version")
                self._db.execute("INSERT INTO alembic_version VALUES (?)", (name,))

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
        row = (email.lower(), name, role, salt, _password_hash(salt, password), time.time())
        with self._lock, self._db:
            self._db.execute("INSERT INTO user VALUES (?, ?, ?, ?, ?, ?)", row)

    def add_chat(self, email: str, chat: Mapping[str, object]) -> str:
        """Keep a chat and return its id."""
        name, title = secrets.token_hex(16), str(chat.get("title", "New Chat"))
        columns = "(id, user_id, title, chat, updated_at)"
        row = (name, email, title, json.dumps(chat), int(time.time()))
        with self._lock, self._db:
            self._db.execute(f"INSERT INTO chat {columns} VALUES (?, ?, ?, ?, ?)", row)
        return name

    def chats(self, email: str) -> list[dict[str, object]]:
        """A user's chats, the newest first."""
        query = "SELECT id, title, updated_at FROM chat WHERE user_id = ? ORDER BY updated_at DESC"
        with self._lock:
            rows = self._db.execute(query, (email,)).fetchall()
        return [{"id": name, "title": title, "updated_at": at} for name, title, at in rows]

    def role_of(self, email: str, password: str) -> str | None:
        """The user's role, or ``None`` when address or password is wrong."""
        query = "SELECT role, salt, password FROM user WHERE email = ?"
        with self._lock:
            row = self._db.execute(query, (email.lower(),)).fetchone()
        return str(row[0]) if row and row[2] == _password_hash(row[1], password) else None


def _password_hash(salt: str, password: str) -> str:
    return hashlib.scrypt(password.encode(), salt=salt.encode(), n=1024, r=8, p=1).hex()


def _from_environment(name: str, environment: Mapping[str, str]) -> str | None:
    singular = {"OPENAI_API_BASE_URLS": "OPENAI_API_BASE_URL", "OPENAI_API_KEYS": "OPENAI_API_KEY"}
    return environment.get(name) or environment.get(singular.get(name, name))


def secret_key(folder: Path, environment: Mapping[str, str]) -> str:
    """The key that signs sessions: a given one, or one made once as start.sh does."""
    if configured_key := environment.get("WEBUI_SECRET_KEY"):
        return configured_key
    file = folder.parent / ".webui_secret_key"
    if not file.exists():
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "w") as handle:
            handle.write(secrets.token_hex(16))
    return file.read_text()
