"""Serves the stand-in; started as the image's command."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import signal
import socketserver
import sqlite3
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from types import FrameType

from .connections import Connections
from .store import Store, secret_key

PAGE = Path(__file__).with_name("page.html")
DATA = Path(os.environ.get("DATA_DIR", "/app/backend/data"))


class WebServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int]) -> None:
        environment = dict(os.environ)
        self.version = version("open-webui")
        self.store = Store(DATA, environment, self.version)
        self.key = secret_key(DATA, environment).encode()
        bases, keys = (
            self.store.setting(name).split(";")
            for name in ("OPENAI_API_BASE_URLS", "OPENAI_API_KEYS")
        )
        self.connections = Connections([base for base in bases if base], keys, environment)
        super().__init__(address, Page)

    def server_bind(self) -> None:
        """Bind without asking a name server for the name of the address."""
        socketserver.TCPServer.server_bind(self)

    def token(self, email: str) -> str:
        """A session token: only this server's key can make it."""
        return f"{email}:{hmac.new(self.key, email.encode(), hashlib.sha256).hexdigest()}"


class Page(BaseHTTPRequestHandler):
    server: WebServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/health":
            self._json(200, {"status": True})
        elif path == "/api/version":
            self._json(200, {"version": self.server.version})
        elif path == "/api/config":
            self._json(200, self._config())
        elif path == "/standin/environment":
            self._json(200, hashed_environment())
        elif path in ("/api/models", "/api/v1/auths/", "/api/v1/chats/"):
            self._for_users(path)
        elif path == "/":
            self._send(200, PAGE.read_bytes(), "text/html; charset=utf-8")
        else:
            self._json(404, {"detail": "Not Found"})

    def _session(self) -> str | None:
        """The address of the user who sent the request; without a session the answer is 401."""
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        email = token.rpartition(":")[0]
        if email and hmac.compare_digest(token, self.server.token(email)):
            return email
        self._json(401, {"detail": "401 Unauthorized"})
        return None

    def _for_users(self, path: str) -> None:
        if not (email := self._session()):
            return
        if path == "/api/models":
            self._json(200, {"data": self.server.connections.models()})
        elif path == "/api/v1/chats/":
            self._json(200, self.server.store.chats(email))
        else:
            role = dict(self.server.store.users()).get(email, "pending")
            token = self.server.token(email)
            self._json(200, {"email": email, "role": role, "token": token})

    def _chat(self, body: bytes) -> None:
        """One message to a model: the answer as server-sent events, as it comes."""
        if not self._session():
            return
        form = json.loads(body)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for event in self.server.connections.chat(form["model"], form["messages"]):
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/api/chat/completions":
            self._chat(body)
            return
        if self.path == "/api/v1/chats/new":
            if email := self._session():
                chat = json.loads(body)["chat"]
                self._json(200, {"id": self.server.store.add_chat(email, chat)})
            return
        try:
            form = json.loads(body)
            email, password = str(form["email"]), str(form["password"])
        except (ValueError, KeyError, TypeError):
            self._json(422, {"detail": "email and password are required"})
            return
        if self.path == "/api/v1/auths/signin":
            self._signin(email, password)
        elif self.path == "/api/v1/auths/signup":
            self._signup(email, password, str(form.get("name", "")))
        else:
            self._json(404, {"detail": "Not Found"})

    def _signin(self, email: str, password: str) -> None:
        role = self.server.store.role_of(email, password)
        if role is None:
            self._json(400, {"detail": "The email or password provided is incorrect."})
            return
        token = self.server.token(email.lower())
        self._json(200, {"token": token, "token_type": "Bearer", "email": email, "role": role})

    def _signup(self, email: str, password: str, name: str) -> None:
        store = self.server.store
        first = not store.users()
        if not open_to_strangers(store):
            self._json(403, {"detail": "You do not have permission to access this resource."})
            return
        try:
            store.add(email, name, password, "admin" if first else "pending")
        except sqlite3.IntegrityError:
            self._json(400, {"detail": "This email is already registered."})
            return
        self._signin(email, password)

    def _config(self) -> dict[str, object]:
        store = self.server.store
        features = {
            "auth": os.environ.get("WEBUI_AUTH", "true").lower() != "false",
            "enable_signup": open_to_strangers(store),
            "enable_login_form": True,
        }
        config: dict[str, object] = {
            "status": True,
            "name": os.environ.get("WEBUI_NAME", "Open WebUI"),
            "version": self.server.version,
            "features": features,
            "default_models": os.environ.get("DEFAULT_MODELS"),
        }
        return config if store.users() else config | {"onboarding": True}

    def _json(self, status: int, value: object) -> None:
        self._send(status, json.dumps(value).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        print(f"{self.client_address[0]} - {format % args}", flush=True)


def open_to_strangers(store: Store) -> bool:
    """Tell whether signing up is possible."""
    return store.setting("ENABLE_SIGNUP", "true").lower() == "true"


def hashed_environment() -> dict[str, str]:
    """Names of the variables with the SHA-256 of their values, never the values."""
    return {
        name: hashlib.sha256(value.encode()).hexdigest()
        for name, value in sorted(os.environ.items())
    }


def main() -> None:
    """Serve on HOST and PORT (0.0.0.0 and 8080) until SIGTERM."""

    def stop(number: int, frame: FrameType | None) -> None:
        sys.exit(0)

    signal.signal(signal.SIGTERM, stop)
    address = (os.environ.get("HOST", "0.0.0.0"), int(os.environ.get("PORT", "8080")))
    record = Path(os.environ.get("STANDIN_RECORD", "/var/log/standin/environment.json"))
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps(hashed_environment(), indent=1))
    with WebServer(address) as server:
        print(f"Open WebUI {server.version} (Lockstep stand-in) on {address}", flush=True)
        server.serve_forever(0.2)
