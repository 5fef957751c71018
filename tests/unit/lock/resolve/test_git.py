"""Branches become commits by asking real repositories; nothing waits for a human."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from a_repository import commit
from a_repository import git as run
from local_server import Reply, refused_address, serving

from lockstep.core.errors import ResolveError
from lockstep.inventory.settings import Proxy, Sources
from lockstep.lock.moving import GitItem
from lockstep.lock.pins import GitPin
from lockstep.lock.resolve import git, program
from lockstep.lock.resolve.git import resolve_git
from lockstep.lock.resolve.http import Network

PUBLIC = "https://github.com/someone/engine.git"
DIRECT = Proxy()


def make_repository(folder: Path) -> Path:
    """A repository with the branch `fix/parsing` ahead of `main`, and the tag `v1` on `main`."""
    folder = folder / "engine.git"
    folder.mkdir()
    run(folder, "init", "-q", "-b", "main")
    commit(folder)
    run(folder, "tag", "v1")
    run(folder, "checkout", "-q", "-b", "fix/parsing")
    commit(folder)
    return folder


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path)


def mirror(folder: Path) -> Sources:
    return Sources(git={"https://github.com/someone/": f"{folder.parent}/"})


def test_a_branch_becomes_the_commit_at_its_head(repository: Path) -> None:
    pin = resolve_git(GitItem(PUBLIC, "fix/parsing"), Network(mirror(repository)))
    assert pin == GitPin("fix/parsing", run(repository, "rev-parse", "fix/parsing"))
    # A branch is not taken for another that ends like it.
    run(repository, "branch", "other/main", "fix/parsing")
    pin = resolve_git(GitItem(PUBLIC, "main"), Network(mirror(repository)))
    assert pin.commit == run(repository, "rev-parse", "refs/heads/main")


def test_a_fixed_commit_stays_without_asking_anybody() -> None:
    item = GitItem("https://nowhere.invalid/x.git", "main", "ab" * 20)
    assert resolve_git(item, Network(Sources())) == GitPin("main", "ab" * 20)


def failure(url: str, branch: str, sources: Sources, proxy: Proxy = DIRECT) -> str:
    with pytest.raises(ResolveError) as error:
        resolve_git(GitItem(url, branch), Network(sources, proxy))
    return str(error.value)


def test_a_name_that_is_no_branch_is_refused(repository: Path) -> None:
    assert failure(PUBLIC, "fix", mirror(repository)) == (
        f"{repository}: the repository has no branch 'fix'; found neither branch nor tag of that "
        "name. Correct the branch, or give a commit."
    )
    assert failure(PUBLIC, "v1", mirror(repository)) == (
        f"{repository}: the repository has no branch 'v1'; found a tag of that name. "
        "Give the tag's commit."
    )


def test_a_server_that_is_not_there_is_named_without_its_password() -> None:
    message = failure(f"http://user:secret@{refused_address()}/x.git", "main", Sources())
    assert "git cannot read the repository; found unable to access" in message
    assert "secret" not in message and "user" not in message


def test_a_private_repository_is_refused_instead_of_asking_for_a_password() -> None:
    login = Reply(status=401, headers={"WWW-Authenticate": 'Basic realm="x"'})
    with serving({"/x.git/info/refs": login}) as server:
        message = failure(f"{server.url}/x.git", "main", Sources())
    assert "git cannot read the repository; found" in message
    assert "terminal prompts disabled" in message or "Authentication failed" in message


def test_the_inventorys_proxy_reaches_git() -> None:
    address, head = "http://forge.example/x.git", "ab" * 20
    # git's "dumb" protocol: one line per reference.
    references = Reply(f"{head}\trefs/heads/main\n".encode())
    with serving({f"{address}/info/refs": references}) as proxy:
        network = Network(Sources(), Proxy(http=proxy.url))
        assert resolve_git(GitItem(address, "main"), network).commit == head


def test_an_option_in_place_of_an_address_is_not_an_option(tmp_path: Path) -> None:
    target_path = tmp_path / "made"
    message = failure(f"--upload-pack=touch {target_path};", "main", Sources())
    assert "git cannot read the repository" in message
    assert not target_path.exists()


def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git, "LIMIT_S", 0.5)
    stop = threading.Event()

    def silence(request: object) -> Reply:
        stop.wait()
        return Reply()

    with serving({"/x.git/info/refs": silence}) as server:
        message = failure(f"{server.url}/x.git", "main", Sources())
        stop.set()
    assert "git did not end; found still running after 0 s" in message
    assert not program._running


def test_a_program_that_is_missing_is_named() -> None:
    with pytest.raises(ResolveError, match="no-such-program cannot be run; found No such file"):
        program.run(["no-such-program"], proxy=DIRECT, environment={}, limit_s=1)
