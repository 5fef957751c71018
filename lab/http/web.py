"""Serves folders over HTTP: the package indexes and the apt repository."""

from __future__ import annotations

from pathlib import Path

from lab.core.service import state_folder
from lab.http.access_log import AccessLog, log_path
from lab.http.http_server import Handler, Server


class WebServer(Server):
    """Serves folders. The first root with a path answers: the state folder overlays the cache."""

    def __init__(self, address: tuple[str, int], roots: list[Path], log: AccessLog) -> None:
        self.roots = roots
        super().__init__(address, FileHandler, log)


class FileHandler(Handler):
    server: WebServer

    def respond(self, path: str, query: str) -> None:
        if path == "/health":
            self.send_json({"status": "ok"})
            return
        parts = [part for part in path.split("/") if part]
        if any(part == ".." for part in parts):
            self.send_error_text(404, "no such file")
            return
        for root in self.server.roots:
            target_path = root.joinpath(*parts)
            if target_path.is_dir() and not path.endswith("/"):
                self.send_redirect(path + "/")
                return
            file = target_path / "index.html" if path.endswith("/") else target_path
            if file.is_file():
                self.send_file(file)
                return
        self.send_error_text(404, "no such file")


def serve(roots: list[Path], state: Path, address: str, port: int) -> None:
    """Serve the folders until the process is ended.

    Files in ``<state>/services/web`` come before those of the same path in the roots.
    """
    overlay = state_folder(state, "web")
    log = AccessLog(log_path(state, "web"))
    WebServer((address, port), [overlay, *roots], log).serve_forever()
