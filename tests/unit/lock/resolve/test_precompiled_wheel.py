"""The wheel with a fork's compiled parts: found as vLLM's own build finds it, read for its hash."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from a_repository import commit
from a_repository import git as run
from local_server import Answers, Reply, as_json, serving

from lockstep.core.errors import ResolveError
from lockstep.inventory.settings import Sources
from lockstep.lock.moving import GitItem, PrecompiledItem
from lockstep.lock.pins import PrecompiledPin
from lockstep.lock.resolve.http import Network
from lockstep.lock.resolve.precompiled_wheel import resolve_precompiled

FORK, UPSTREAM = "https://git.example/me/vllm.git", "https://git.example/vllm/vllm.git"
BODY = b"compiled" * 1000
FILE = "vllm-0.19.1.dev5+gabc.cu130-cp38-abi3-manylinux_2_35_aarch64.whl"
FOR_OTHERS = {"package_name": "vllm", "platform_tag": "linux_x86_64", "path": "../../x.whl"}
WANTED = PrecompiledItem(GitItem(FORK, "fix"), UPSTREAM, "aarch64", "cu130")


class Site:
    """A fork that left upstream two commits ago; upstream has moved on as well."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        upstream, self.fork = folder / "vllm/vllm.git", folder / "me/vllm.git"
        upstream.mkdir(parents=True)
        run(upstream, "init", "--quiet", "--initial-branch", "main")
        for message in ("one", "two"):
            self.base = commit(upstream, message)
        run(folder, "clone", "--quiet", str(upstream), str(self.fork))
        commit(upstream, "three")
        run(self.fork, "checkout", "--quiet", "-b", "fix")
        for message in ("fix", "more"):
            self.tree = commit(self.fork, message)

    def start_anew(self) -> str:
        """Put the fork's branch to a commit that has nothing in common with upstream."""
        run(self.fork, "checkout", "--quiet", "--orphan", "other")
        stranger = commit(self.fork, "nothing in common")
        run(self.fork, "branch", "--force", "fix", "other")
        return stranger

    def answers(self, commit: str = "", *, variant: str = "cu130/") -> dict[str, Any]:
        """The answers of vLLM's server about a commit."""
        commit, quoted_file = commit or self.base, FILE.replace("+", "%2B")
        up = "../" * (variant.count("/") + 1)
        row = {"package_name": "vllm", "platform_tag": "manylinux_2_35_aarch64"}
        rows = [
            {**row, "platform_tag": "manylinux_2_35_x86_64", "path": f"{up}x86.whl"},
            {**row, "package_name": "other", "path": f"{up}other.whl"},
            {**row, "path": up + quoted_file},
            {**row, "path": f"{up}later.whl"},
        ]
        listing = f"/{commit}/{variant}vllm/metadata.json"
        return {listing: as_json(rows), f"/{commit}/{quoted_file}": Reply(BODY)}

    def resolve(
        self, answers: Answers, item: PrecompiledItem = WANTED, old: PrecompiledPin | None = None
    ) -> PrecompiledPin:
        with serving(answers) as server:
            self.requests = server.requests
            mirror = {"https://git.example/": f"{self.folder}/"}
            sources = Sources(git=mirror, vllm_wheels=f"{server.url}/")
            return resolve_precompiled(item, self.tree, Network(sources), old=old)

    def failure(self, answers: Answers) -> str:
        with pytest.raises(ResolveError) as error:
            self.resolve(answers)
        return str(error.value)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def pin(site: Site, **changes: Any) -> PrecompiledPin:
    file = (f"{site.base}/{FILE}", hashlib.sha256(BODY).hexdigest(), len(BODY))
    return replace(
        PrecompiledPin(site.tree, UPSTREAM, site.base, "aarch64", "cu130", *file), **changes
    )


def test_a_wheel_is_of_the_commit_at_which_the_fork_left_upstream(site: Site) -> None:
    assert site.resolve(site.answers()) == pin(site)
    # The usual build stands above the others.
    usual = site.resolve(site.answers(variant=""), replace(WANTED, variant=""))
    assert usual == pin(site, variant="")
    # A fork that has moved on meanwhile is still read at its commit.
    site.start_anew()
    assert site.resolve(site.answers()) == pin(site)


def test_strangers_have_no_commit_in_common(site: Site) -> None:
    site.tree = site.start_anew()
    message = site.failure({})
    assert "the fork and upstream have no commit in common; found " + site.tree[:12] in message


def test_a_commit_that_is_named_needs_no_history(site: Site) -> None:
    named_item = replace(WANTED, commit=40 * "d", upstream="https://nowhere.invalid/x.git")
    precompiled_pin = site.resolve(site.answers(40 * "d"), named_item)
    assert (precompiled_pin.commit, precompiled_pin.path) == (40 * "d", f"{40 * 'd'}/{FILE}")


def test_the_hash_of_a_wheel_that_is_what_it_was_is_believed(site: Site) -> None:
    old = pin(site, tree=40 * "e", sha256=64 * "f")
    assert site.resolve(site.answers(), old=old) == pin(site, sha256=64 * "f")
    assert [ask.method for ask in site.requests if ask.path.endswith(".whl")] == ["HEAD"]
    # Another size: another file.
    assert site.resolve(site.answers(), old=replace(old, size=7)) == pin(site)


def test_a_commit_that_was_not_compiled_is_named_with_what_can_be_done(site: Site) -> None:
    message = site.failure({})
    assert f"/{site.base}/cu130/vllm/metadata.json: vLLM's server has no wheels of " in message
    assert "as cu130; found HTTP 404. Name another commit (engine.precompiled_commit)" in message


@pytest.mark.parametrize(
    ("rows", "found"), [({"a": 1}, "an empty list"), ([7, FOR_OTHERS], "linux_x86_64. Name anothe")]
)
def test_a_list_without_a_wheel_for_the_spark_is_refused(site: Site, rows: Any, found: str):
    answer = as_json(rows)
    message = site.failure({f"/{site.base}/cu130/vllm/metadata.json": answer})
    assert f"for aarch64; found {found}" in message


def test_a_list_that_names_a_wheel_that_is_not_there_is_refused(site: Site) -> None:
    answers = site.answers()
    del answers[f"/{site.base}/{FILE.replace('+', '%2B')}"]
    assert "the file cannot be read for its hash; found HTTP 404" in site.failure(answers)
