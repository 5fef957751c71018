"""Branches become commits by asking real repositories; nothing waits for a human."""

import threading
from pathlib import Path

import pytest
from a_repository import fork
from a_repository import git as run
from local_server import Reply, serving

from lockstep.core.errors import ResolveError
from lockstep.inventory.settings import Proxy, Sources
from lockstep.lock.moving import GitItem
from lockstep.lock.pins import GitPin
from lockstep.lock.resolve import git, program
from lockstep.lock.resolve.git import resolve_git
from lockstep.lock.resolve.http import Network

PUBLIC = "https://github.com/someone/engine.git"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """With the branch `fix/parsing` ahead of `main`, and the tag `v1` on `main`."""
    return fork(tmp_path / "engine.git")


def mirror(folder: Path) -> Sources:
    return Sources(git={"https://github.com/someone/": f"{folder.parent}/"})


def test_a_branch_becomes_the_commit_at_its_head(repository: Path) -> None:
    pin = resolve_git(GitItem(PUBLIC, "fix/parsing"), Network(mirror(repository)))
    assert pin == GitPin("fix/parsing", run(repository, "rev-parse", "fix/parsing"))
    # A branch is not taken for another that ends like it.
    run(repository, "branch", "other/main", "fix/parsing")
    pin = resolve_git(GitItem(PUBLIC, "main"), Network(mirror(repository)))
    assert pin.commit == run(repository, "rev-parse", "refs/heads/main")
    # A fixed commit stays, and nobody is asked.
    item = GitItem("https://nowhere.invalid/x.git", "main", "ab" * 20)
    assert resolve_git(item, Network(Sources())) == GitPin("main", "ab" * 20)


def failure(url: str, branch: str = "main", sources: Sources | None = None) -> str:
    with pytest.raises(ResolveError) as error:
        resolve_git(GitItem(url, branch), Network(sources or Sources()))
    return str(error.value)


def test_a_name_that_is_no_branch_is_refused(repository: Path) -> None:
    message = failure(PUBLIC, "fix", mirror(repository))
    assert message.startswith(f"{repository}: the repository has no branch 'fix'; found neither")
    assert "Give the tag's commit." in failure(PUBLIC, "v1", mirror(repository))


def test_an_option_in_place_of_an_address_is_not_an_option(tmp_path: Path):
    made_path = tmp_path / "made"
    assert "git cannot read the repository" in failure(f"--upload-pack=touch {made_path};")
    assert not made_path.exists()


def test_a_private_repository_is_refused_instead_of_asking_for_a_password() -> None:
    login = Reply(status=401, headers={"WWW-Authenticate": 'Basic realm="x"'})
    with serving({"/x.git/info/refs": login}) as server:
        message = failure(server.url.replace("//", "//user:secret@") + "/x.git")
    assert "git cannot read the repository; found" in message
    assert "secret" not in message
    assert "terminal prompts disabled" in message or "Authentication failed" in message


def test_the_inventorys_proxy_reaches_git() -> None:
    address, head = "http://forge.example/x.git", "ab" * 20
    # git's "dumb" protocol: one line per reference.
    references = Reply(f"{head}\trefs/heads/main\n".encode())
    with serving({f"{address}/info/refs": references}) as proxy:
        network = Network(Sources(), Proxy(http=proxy.url))
        assert resolve_git(GitItem(address, "main"), network).commit == head


def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git, "LIMIT_S", 0.5)
    stop = threading.Event()

    def silence(request: object) -> Reply:
        stop.wait()
        return Reply()

    with serving({"/x.git/info/refs": silence}) as server:
        message = failure(f"{server.url}/x.git")
        stop.set()
    assert "git did not end; found still running after 0 s" in message
    assert not program._running


def test_a_program_that_is_missing_is_named() -> None:
    with pytest.raises(ResolveError, match="no-such-program cannot be run; found No such file"):
        program.run(["no-such-program"], proxy=Proxy(), environment={}, limit_s=1)
