"""Git logs in to a private mirror; the password is on no command line."""

from __future__ import annotations

import base64
import subprocess
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from a_repository import BRANCH, fork, git, source
from local_server import LocalServer, Reply, SeenRequest, serving

from lockstep.inventory.settings import Sources
from lockstep.lock.moving import GitItem
from lockstep.lock.resolve.git import resolve_git
from lockstep.lock.resolve.http import Network
from lockstep.onhost.environment import git_source
from lockstep.onhost.fetch import login_in_url, peer_client

PASSWORD = "p@ss:word/%"
QUOTED = "p%40ss%3Aword%2F%25"
LOGIN = "Basic " + base64.b64encode(f"some one:{PASSWORD}".encode()).decode()


@dataclass(frozen=True)
class Mirror:
    """A private server of a repository's files, and what git ran against it."""

    repository: Path
    server: LocalServer
    trace: Path

    @property
    def address(self) -> str:
        return self.server.url.replace("://", f"://some%20one:{QUOTED}@") + "/engine.git"

    def assert_no_password_in(self, arguments: list[str]) -> None:
        """Look at every command line, of git's own children too."""
        text = self.trace.read_text()
        assert "remote-http" in text
        assert not any(word in f"{arguments} {text}" for word in (PASSWORD, QUOTED))


@pytest.fixture
def private(tmp_path, monkeypatch):
    repository = fork(tmp_path / "engine.git")
    git(repository, "update-server-info")
    folder = repository / ".git"

    def answer(path: Path, request: SeenRequest) -> Reply:
        if request.headers.get("Authorization") != LOGIN:
            return Reply(status=401, headers={"WWW-Authenticate": 'Basic realm="x"'})
        return Reply(path.read_bytes())

    files = {
        f"/engine.git/{path.relative_to(folder)}": partial(answer, path)
        for path in folder.rglob("*")
        if path.is_file()
    }
    monkeypatch.setenv("GIT_TRACE", str(tmp_path / "trace"))
    with serving(files) as server:
        yield Mirror(repository, server, tmp_path / "trace")


def test_a_branch_of_a_private_mirror_is_resolved(private):
    public = "https://github.com/someone/engine.git"
    sources = Sources(git={public: private.address})
    pin = resolve_git(GitItem(public, BRANCH), Network(sources))
    assert pin.commit == source(private.repository)["commit"]
    private.assert_no_password_in([])


def test_a_host_fetches_from_a_private_mirror(private, tmp_path):
    wanted_source = {**source(private.repository), "git": private.address}
    arguments: list[str] = []

    def do(*argv: str, **environment: str) -> None:
        arguments.extend(argv)
        environment["GIT_TRACE"] = str(private.trace)
        assert subprocess.run(argv, env=environment, check=False).returncode == 0, argv

    (tmp_path / "store/.locks").mkdir(parents=True)
    copy = git_source.SourceRepository(tmp_path / "copy", wanted_source, tmp_path / "store", do)
    copy.check_out(peer_client.Copier(None))
    assert git(tmp_path / "copy", "rev-parse", "HEAD") == wanted_source["commit"]
    private.assert_no_password_in(arguments)


@pytest.mark.parametrize(
    "address",
    ["https://forge.example/a/b.git", "ssh://git@forge/a/b.git", "git@forge:a/b.git", "/srv/b.git"],
)
def test_an_address_without_a_password_stays_as_it_is(address):
    assert login_in_url.without_login_for_git(address) == (address, {})


def test_the_variables_are_for_that_server_only():
    address = "https://token@[::1]:8443/a/b.git?x=1"
    public_url, variables = login_in_url.without_login_for_git(address)
    assert public_url == "https://[::1]:8443/a/b.git?x=1"
    assert variables["GIT_CONFIG_KEY_0"] == "http.https://[::1]:8443/.extraHeader"
    login = base64.b64encode(b"token:").decode()
    assert variables["GIT_CONFIG_VALUE_0"] == f"Authorization: Basic {login}"
