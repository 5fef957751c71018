"""A git server: git's own daemon once per connection, with its bytes counted."""

from __future__ import annotations

import re
import shutil
import socketserver
import subprocess
import threading
from pathlib import Path

from lab.core.service import advance
from lab.git.git_content import git
from lab.http.access_log import AccessLog, log_path

CHUNK = 64 * 1024
_REQUEST = re.compile(rb"^[0-9a-f]{4}(git-[a-z-]+) ([^\0]+)\0")


class GitServer(socketserver.ThreadingTCPServer):
    """Serves the bare repositories below ``base``, each under its own name."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], base: Path, log: AccessLog) -> None:
        self.base = base
        self.access_log = log
        super().__init__(address, GitConnection)


class GitConnection(socketserver.BaseRequestHandler):
    server: GitServer

    def handle(self) -> None:
        base = str(self.server.base)
        command = ["git", "daemon", "--inetd", "--export-all", f"--base-path={base}", base]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as daemon:
            self.first = b""
            threading.Thread(target=self._forward_request, args=(daemon,), daemon=True).start()
            body_bytes = self._forward_answer(daemon)
            daemon.kill()
        match = _REQUEST.match(self.first)
        service, path = match.groups() if match else (b"unknown", b"")
        client = str(self.client_address[0])
        self.server.access_log.add(client, service.decode(), path.decode(), 200, body_bytes)

    def _forward_request(self, daemon: subprocess.Popen[bytes]) -> None:
        assert daemon.stdin
        try:
            while data := self.request.recv(CHUNK):
                if len(self.first) < 1024:
                    self.first += data
                daemon.stdin.write(data)
                daemon.stdin.flush()
            daemon.stdin.close()
        except (OSError, ValueError):
            daemon.kill()

    def _forward_answer(self, daemon: subprocess.Popen[bytes]) -> int:
        assert daemon.stdout
        body_bytes = 0
        try:
            while data := daemon.stdout.read1(CHUNK):  # type: ignore[attr-defined]
                self.request.sendall(data)
                body_bytes += len(data)
        except OSError:
            pass
        return body_bytes


def serve(content: Path, state: Path, address: str, port: int) -> None:
    """Serve this lab's own copy of the repositories until the process is ended.

    A test may commit to the copy in ``<state>/services/git/content``; the cache stays as it is.
    """
    base = advance(state, "git", content, merge)
    GitServer((address, port), base, AccessLog(log_path(state, "git"))).serve_forever()


def merge(content: Path, copy: Path) -> None:
    """Bring the repositories' branches and tags into the copy, whose older commits stay."""
    for repository in sorted(content.glob("*.git")):
        target = copy / repository.name
        if target.exists():
            references = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
            git("fetch", "--quiet", "--force", str(repository), *references, cwd=target)
            continue
        target_path = target.with_suffix(".unfinished")
        shutil.rmtree(target_path, ignore_errors=True)
        shutil.copytree(repository, target_path)
        target_path.rename(target)
