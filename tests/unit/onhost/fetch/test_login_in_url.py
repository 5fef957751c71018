"""Git logs in to a private mirror; the password is on no command line."""

import base64
import subprocess
from functools import partial
from pathlib import Path

import pytest
from a_repository import BRANCH, fork, git, source
from local_server import Reply, SeenRequest, serving

from lockstep.inventory.settings import Sources
from lockstep.lock.moving import GitItem
from lockstep.lock.resolve.git import resolve_git
from lockstep.lock.resolve.http import Network
from lockstep.onhost.environment import git_source
from lockstep.onhost.fetch import login_in_url, peer_client

PASSWORD = "p@ss:word/%"
QUOTED = "p%40ss%3Aword%2F%25"
LOGIN = "Basic " + base64.b64encode(f"some one:{PASSWORD}".encode()).decode()


@pytest.fixture
def private(tmp_path, monkeypatch):
    """The fork, served to who logs in, and its address with the login."""
    repository = fork(tmp_path / "engine.git")
    git(repository, "update-server-info")

    def answer(path: Path, request: SeenRequest) -> Reply:
        if request.headers.get("Authorization") != LOGIN:
            return Reply(status=401, headers={"WWW-Authenticate": 'Basic realm="x"'})
        return Reply(path.read_bytes())

    paths = [path for path in (repository / ".git").rglob("*") if path.is_file()]
    files = {f"/{path.relative_to(tmp_path)}": partial(answer, path) for path in paths}
    monkeypatch.setenv("GIT_TRACE", str(tmp_path / "trace"))
    with serving(files) as server:
        login_url = server.url.replace("://", f"://some%20one:{QUOTED}@")
        yield {**source(repository), "git": f"{login_url}/engine.git/.git"}
    # Every command line, of git's own children too.
    text = (tmp_path / "trace").read_text()
    assert "remote-http" in text and PASSWORD not in text and QUOTED not in text


def test_a_branch_of_a_private_mirror_is_resolved(private):
    public = "https://github.com/someone/engine.git"
    pin = resolve_git(GitItem(public, BRANCH), Network(Sources(git={public: private["git"]})))
    assert pin.commit == private["commit"]


def test_a_host_fetches_from_a_private_mirror(private, tmp_path):
    def run(*argv: str, **environment: str):
        assert QUOTED not in str(argv)
        environment["GIT_TRACE"] = str(tmp_path / "trace")
        subprocess.run(argv, env=environment, check=True)

    (tmp_path / "store/.locks").mkdir(parents=True)
    copy = git_source.SourceRepository(tmp_path / "copy", private, tmp_path / "store", run)
    copy.check_out(peer_client.Copier(None))
    assert git(tmp_path / "copy", "rev-parse", "HEAD") == private["commit"]


@pytest.mark.parametrize("address", ["https://forge.example/b.git", "git@forge:b.git", "/b.git"])
def test_an_address_without_a_password_stays_as_it_is(address):
    assert login_in_url.without_login_for_git(address) == (address, {})


def test_the_variables_are_for_that_server_only():
    address = "https://token@[::1]:8443/a/b.git?x=1"
    public_url, variables = login_in_url.without_login_for_git(address)
    assert public_url == "https://[::1]:8443/a/b.git?x=1"
    assert variables["GIT_CONFIG_KEY_0"] == "http.https://[::1]:8443/.extraHeader"
    login = base64.b64encode(b"token:").decode()
    assert variables["GIT_CONFIG_VALUE_0"] == f"Authorization: Basic {login}"
