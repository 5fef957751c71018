"""What an engine is built of comes from other Sparks where they have it, checked as ever."""

from __future__ import annotations

import hashlib
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from a_peer import TOKEN, Spark
from local_server import LocalServer, Reply, serving

from lockstep.onhost.core import common
from lockstep.onhost.fetch import claims, peer_client

from lockstep.onhost.environment import engine_content  # isort: skip

BODY = b"a wheel" * 50_000
NAME = hashlib.sha256(BODY).hexdigest()
FILE = "torch-2.10.0+cu130-cp312-cp312-linux_aarch64.whl"
TORCH = {"name": "torch", "version": "2.10.0+cu130", "file": FILE, "sha256": NAME}


@pytest.fixture
def peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Spark]:
    monkeypatch.setattr(peer_client, "POLL_S", 0.01)
    spark = Spark(tmp_path, "spark1")
    yield spark
    spark.close()


@pytest.fixture
def index() -> Iterator[LocalServer]:
    """An index without hashes in its links and without sizes, as PyTorch's was."""
    page = b'<a href="../files/torch-2.10.0%2Bcu130-cp312-cp312-linux_aarch64.whl">torch</a>'
    file = "/whl/files/torch-2.10.0%2Bcu130-cp312-cp312-linux_aarch64.whl"
    with serving({"/whl/torch/": Reply(page), file: Reply(BODY)}) as server:
        yield server


class Host:
    """The second Spark, which builds."""

    def __init__(self, root: Path, index: LocalServer, *of: peer_client.Peer, **spec: Any) -> None:
        self.paths = common.Paths(root / "host")
        self.folder = root / "engines/store"
        self.home = root / "engines/0123456789ab"
        claims.folder(self.paths).mkdir(parents=True)
        lease = {"token": TOKEN, "peers": [vars(peer) for peer in of]}
        (peer_client.folder(self.paths) / "1.client.json").write_text(json.dumps(lease))
        self.spec: dict[str, Any] = {
            "packages": [{**TORCH, "size": None, "stage": "pytorch"}],
            "built_with": [],
            "precompiled": None,
            "torch_index": None,
            "flashinfer_index": None,
            "index": f"{index.url}/whl",
            **dict.fromkeys(engine_content.TREES),
            **spec,
        }

    def bring(self, stage: str = "pytorch") -> None:
        content = engine_content.Content(self.spec, stage, self.folder)
        with content.shared(self.paths):
            content.bring_wheels()
            content.bring_trees(self.home, run)


def run(*argv: str) -> None:
    if subprocess.run(argv, capture_output=True, check=False).returncode != 0:
        raise common.Problem("it failed")


def test_a_wheel_of_another_spark_costs_the_index_nothing(tmp_path, peer, index, capsys):
    (peer.flat / NAME).write_bytes(BODY)
    host = Host(tmp_path, index, peer.as_peer())
    host.bring()
    assert (host.folder / "wheels" / FILE).read_bytes() == BODY
    assert index.seen == []
    assert capsys.readouterr().out == (
        "engine, pytorch: 1 of 1 wheels to fetch\n"
        "engine, pytorch: 1 of 1 wheels, 0 MB\n"
        "engine, pytorch: 0.3 MB copied from spark1\n"
    )


def test_a_wheel_that_an_earlier_spark_fetches_is_waited_for(tmp_path, peer, index):
    host = Host(tmp_path, index, peer.as_peer(earlier=True))
    with claims.held(peer.paths, "engine-pytorch", [NAME]):
        task = threading.Thread(target=host.bring)
        task.start()
        mine = claims.folder(host.paths) / "engine-pytorch"
        deadline = time.monotonic() + 20
        while not (mine.exists() and claims.alive(mine)) and time.monotonic() < deadline:
            time.sleep(0.001)
        # Others could wait for this one in turn.
        assert mine.read_text() == f"{NAME}\n"
        (peer.flat / NAME).write_bytes(BODY)
        task.join(20)
    assert (host.folder / NAME).read_bytes() == BODY
    assert index.seen == []


def test_wrong_bytes_of_a_peer_are_fetched_from_the_index(tmp_path, peer, index):
    (peer.flat / NAME).write_bytes(bytes(len(BODY)))
    host = Host(tmp_path, index, peer.as_peer())
    host.bring()
    assert (host.folder / NAME).read_bytes() == BODY


def test_a_download_from_an_index_that_gives_no_sizes_goes_on_where_it_ended(tmp_path, index):
    host = Host(tmp_path, index)
    host.folder.mkdir(parents=True)
    (host.folder / f"{NAME}.incomplete").write_bytes(BODY[:1000])
    ranges = []

    def answer(seen):
        ranges.append(seen.headers.get("Range"))
        return Reply(BODY[1000:], 206)

    index.answers["/whl/files/torch-2.10.0%2Bcu130-cp312-cp312-linux_aarch64.whl"] = answer
    host.bring()
    assert (host.folder / NAME).read_bytes() == BODY
    assert ranges == ["bytes=1000-"]


def test_a_transfer_that_was_cut_is_known_by_its_announced_length(tmp_path, index):
    host = Host(tmp_path, index)
    ranges = []

    def answer(seen):
        ranges.append(seen.headers.get("Range"))
        if len(ranges) > 1:
            return Reply(BODY[1000:], 206)
        return Reply(BODY[:1000], headers={"Content-Length": str(len(BODY))})

    index.answers["/whl/files/torch-2.10.0%2Bcu130-cp312-cp312-linux_aarch64.whl"] = answer
    host.bring()
    assert (host.folder / NAME).read_bytes() == BODY
    assert ranges == [None, "bytes=1000-"]


def test_a_file_of_the_right_name_and_another_hash_is_passed_over(tmp_path, index):
    page = f'<a href="{FILE.replace("+", "%2B")}#sha256={"0" * 64}">torch</a>'.encode()
    with serving({"/cu130/torch/": Reply(page)}) as other:
        host = Host(tmp_path, index, torch_index=f"{other.url}/cu130")
        host.bring()
        assert other.paths == ["/cu130/torch/"]
    assert (host.folder / NAME).read_bytes() == BODY


@pytest.fixture
def fork(tmp_path: Path) -> Path:
    folder = tmp_path / "fork"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch", "main")
    (folder / "setup.py").write_text("one")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    git(folder, "tag", "v1")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "second")
    return folder


def git(folder: Path, *argv: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    done = subprocess.run(
        ["git", "-C", str(folder), *identity, *argv], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def tree(fork: Path) -> dict[str, str]:
    return {"git": str(fork), "branch": "main", "commit": git(fork, "rev-parse", "HEAD")}


def test_a_history_of_another_spark_costs_the_git_server_nothing(tmp_path, peer, index, fork):
    source = tree(fork)
    first = Host(tmp_path / "first", index, packages=[], vllm=source)
    first.bring("vllm")
    bundle = first.folder / source["commit"]
    (peer.flat / source["commit"]).write_bytes(bundle.read_bytes())
    fork.rename(tmp_path / "gone")
    host = Host(tmp_path, index, peer.as_peer(), packages=[], vllm=source)
    host.bring("vllm")
    assert git(host.home / "vllm", "rev-parse", "HEAD", "v1~0") == git(
        first.home / "vllm", "rev-parse", "HEAD", "v1~0"
    )
    assert (host.home / "vllm/setup.py").read_text() == "one"
    # And it can give it in turn.
    assert (host.folder / source["commit"]).read_bytes() == bundle.read_bytes()


def test_a_history_that_has_not_the_commit_is_refused(tmp_path, peer, index, fork, capsys):
    old = Host(tmp_path / "first", index, packages=[], vllm=tree(fork))
    old.bring("vllm")
    git(fork, "commit", "--quiet", "--allow-empty", "-m", "third")
    source = tree(fork)
    [bundle] = (path for path in old.folder.iterdir() if path.is_file())
    (peer.flat / source["commit"]).write_bytes(bundle.read_bytes())
    host = Host(tmp_path, index, peer.as_peer(), packages=[], vllm=source)
    host.bring("vllm")
    assert git(host.home / "vllm", "rev-parse", "HEAD") == source["commit"]
    said = capsys.readouterr().out
    assert f"{source['commit'][:12]} from spark1 is not what its hash says; not used" in said
