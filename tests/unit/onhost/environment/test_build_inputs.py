"""The parts of an engine come from other Sparks that have them, checked as ever."""

from __future__ import annotations

import base64
import functools
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from a_peer import Spark, write_lease
from a_repository import commit, git, source
from a_repository import fork as a_fork
from local_server import LocalServer, Reply, serving

from lab.packages.wheels import StandInWheel, write_wheel
from lockstep.onhost.core import errors, layout
from lockstep.onhost.environment import build_inputs, wheel_store
from lockstep.onhost.fetch import announced_fetches, growth_report, peer_client


def built_wheel(name: str, version: str) -> tuple[dict[str, Any], bytes]:
    """The entry of a wheel that pip takes, and its bytes."""
    content = ("".join(map(str, range(60_000))),)
    wheel = StandInWheel(name, version, files=((f"{name}.txt", *content),))
    with tempfile.TemporaryDirectory() as folder:
        path = write_wheel(wheel, Path(folder))
        body = path.read_bytes()
    sha256 = hashlib.sha256(body).hexdigest()
    package = {"name": name, "version": version, "file": path.name, "sha256": sha256}
    return {**package, "size": None, "stage": "pytorch"}, body


OTHER, OTHER_BODY = built_wheel("other", "1.0")
PACKAGE, BODY = built_wheel("torch", "2.10.0+cu130")

FILE, NAME = PACKAGE["file"], PACKAGE["sha256"]
QUOTED = FILE.replace("+", "%2B")


HTML = {"Content-Type": "text/html"}


@pytest.fixture(autouse=True)
def _own_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    """pip as on a host that is not configured."""
    for name in os.environ:
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)


@pytest.fixture
def peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Spark]:
    monkeypatch.setattr(peer_client, "POLL_S", 0.01)
    spark = Spark(tmp_path, "spark1")
    yield spark
    spark.close()


@pytest.fixture
def index() -> Iterator[LocalServer]:
    """An index without hashes in its links and without sizes, as PyTorch's was."""
    page = f'<a href="../files/{QUOTED}">torch</a>'.encode()
    file = f"/whl/files/{QUOTED}"
    with serving({"/whl/torch/": Reply(page, 200, HTML), file: Reply(BODY)}) as server:
        yield server


class Host:
    """The second Spark, which builds."""

    def __init__(
        self, root: Path, index: LocalServer, /, *of: peer_client.Peer, **spec: Any
    ) -> None:
        self.paths = layout.Paths(root / "host")
        self.folder = root / "engines/store"
        self.home = root / "engines/0123456789ab"
        write_lease(self.paths, *of)
        absent = ("precompiled", "torch_index", "flashinfer_index", *build_inputs.TREES)
        self.spec: dict[str, Any] = {"packages": [PACKAGE], "built_with": []}
        self.spec |= {"index": f"{index.url}/whl", "tools": sys.executable}
        self.spec |= {**dict.fromkeys(absent), **spec}

    def bring(self, stage: str = "pytorch") -> None:
        content = build_inputs.Content(self.spec, stage, self.folder)
        with content.hold_copy_claim(self.paths):
            content.bring_wheels()
            content.bring_trees(self.home, self._run)

    def _run(self, *argv: str) -> None:
        if subprocess.run(argv, capture_output=True, check=False).returncode != 0:
            raise errors.Problem("it failed")

    def call_python_by(self, script: str) -> None:
        """Have the interpreter started by a script, which ends with its start."""
        self.home.parent.mkdir(parents=True)
        program = self.home.parent / "python"
        program.write_text(f'#!/bin/sh\n{script}\nexec {sys.executable} "$@"\n')
        program.chmod(0o755)
        self.spec["tools"] = str(program)

    def head(self) -> str:
        return git(self.home / "vllm", "rev-parse", "HEAD")


def test_a_wheel_of_another_spark_costs_the_index_nothing(tmp_path, peer, index, capsys):
    (peer.flat / NAME).write_bytes(BODY)
    host = Host(tmp_path, index, peer.as_peer())
    host.bring()
    assert (host.folder / "wheels" / FILE).read_bytes() == BODY
    assert index.requests == []
    assert capsys.readouterr().out == (
        "engine, pytorch: 1 of 1 wheels to fetch\n"
        "engine, pytorch: 1 of 1 wheels, 0 MB\n"
        "engine, pytorch: 0.3 MB copied from spark1\n"
    )


@pytest.mark.slow
def test_pip_goes_on_where_a_connection_broke(tmp_path, index):
    ranges = []

    def answer(request):
        ranges.append(request.headers.get("Range"))
        if len(ranges) > 1:
            return Reply(BODY[1000:], 206, {"ETag": '"1"'})
        return Reply(BODY[:1000], headers={"Content-Length": str(len(BODY)), "ETag": '"1"'})

    index.answers[f"/whl/files/{QUOTED}"] = answer
    host = Host(tmp_path, index)
    host.bring()
    assert (host.folder / NAME).read_bytes() == BODY
    assert ranges == [None, "bytes=1000-"]


@pytest.mark.slow
def test_a_pip_that_is_killed_leaves_what_it_had_whole(tmp_path, index):
    """The real one, in the middle of its second file."""
    path = f"/whl/other/{OTHER['file']}"
    index.answers["/whl/other/"] = Reply(f'<a href="{path}">o</a>'.encode(), 200, HTML)
    index.answers[path] = Reply(OTHER_BODY)
    second = index.answers[f"/whl/files/{QUOTED}"]
    log = tmp_path / "pid"

    def answer(request):
        # The first pip is cut off here, with the other file whole.
        pids = log.read_text().split()
        if len(pids) == 1:
            os.kill(int(pids[0]), signal.SIGKILL)
        return second

    index.answers[f"/whl/files/{QUOTED}"] = answer
    host = Host(tmp_path, index, packages=[OTHER, PACKAGE])
    host.call_python_by(f"echo $$ >> {log}")
    with pytest.raises(errors.Problem):
        host.bring()
    # It has each file in a folder for itself until all of them are there.
    (host.folder / ".pip/pip-unpack-x").mkdir()
    (host.folder / ".pip/pip-unpack-x" / FILE).write_bytes(BODY[:1000])
    host.bring()
    assert (host.folder / NAME).read_bytes() == BODY
    assert (host.folder / OTHER["sha256"]).read_bytes() == OTHER_BODY
    assert index.paths.count(path) == 1 and not (host.folder / ".pip").exists()


def test_small_wheels_share_a_run_of_pip_and_a_large_one_has_its_own():
    def wheel(name: str, size: int | None) -> wheel_store.Wheel:
        return wheel_store.Wheel(name, "1", f"{name}.whl", name, size)

    half = wheel_store.BATCH // 2
    every = [wheel("large", 2 * half), wheel("a", half), wheel("b", half)]
    every += [wheel("c", 1), wheel("c", 1)]
    batches = [[package.name for package in batch] for batch in wheel_store._batches(every)]
    # pip refuses two versions of one package.
    assert batches == [["large"], ["a", "b"], ["c"], ["c"]]
    # An index without sizes does not cost a start of pip for each wheel.
    every = [wheel(f"w{number}", None) for number in range(40)]
    assert [len(batch) for batch in wheel_store._batches(every)] == [16, 16, 8]


@pytest.mark.slow
def test_a_password_is_for_its_own_server_and_on_no_command_line(tmp_path, index, capfd):
    def passwords(server: LocalServer) -> list[str | None]:
        return [request.headers.get("Authorization") for request in server.requests]

    login, basic = "http://me:s3cret@", "Basic " + base64.b64encode(b"me:s3cret").decode()
    page = f'<a href="{index.url}/whl/files/{QUOTED}#sha256={NAME}">torch</a>'.encode()
    with serving({"/private/torch/": Reply(page, 200, HTML)}) as private:
        host = Host(tmp_path / "one", index, index=f"{login}{private.host}/private")
        host.call_python_by(f'echo "$@" >> {tmp_path}/argv')
        host.bring()
        assert (passwords(private), passwords(index)) == ([basic], [None])
    # The wheel of compiled parts is no package of an index.
    url = f"{login}{index.host}/whl/files/{QUOTED}"
    pip = wheel_store.Pip(host.spec["tools"], wheel_store.pip_index_variables(None, [], [url]))
    store = wheel_store.WheelStore(tmp_path / "two", pip, peer_client.Copier(None))
    store.bring_wheels("vllm", [wheel_store.Wheel("torch", "1", FILE, NAME, None, url)])
    assert passwords(index)[-1] == basic
    output = capfd.readouterr()
    argv = (tmp_path / "argv").read_text()
    assert argv.count("pip download") == 2 and "s3cret" not in argv + output.out + output.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ({}, "No matching distribution found for torch==2.10.0+cu130. Remedy: check network"),
        # Other bytes than were locked.
        ({f"/whl/files/{QUOTED}": Reply(OTHER_BODY)}, f"Expected sha256 {NAME} Got"),
    ],
)
def test_a_wheel_that_cannot_be_had_is_named_with_a_remedy(tmp_path, index, answers, why):
    index.answers = {**index.answers, **answers} if answers else {}
    host = Host(tmp_path, index, index=f"http://me:s3cret@{index.host}/whl")
    with pytest.raises(errors.Problem) as error:
        host.bring()
    message = str(error.value)
    assert message.startswith(f"pip could not fetch {FILE}: ") and why in message
    assert message.endswith("what is not there any more: `lockstep update`")
    assert "s3cret" not in message
    assert not (host.folder / NAME).exists() and not (host.folder / "wheels" / FILE).exists()


@pytest.mark.slow
def test_a_wheel_of_an_index_is_taken_by_its_hash(tmp_path, index, monkeypatch):
    """The index has another file of that name first, and gives neither hashes nor sizes."""
    # Without an index, pip's own configuration names it.
    configuration = tmp_path / "pip.conf"
    configuration.write_text(f"[global]\nindex-url = {index.url}/whl\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(configuration))
    page = f'<a href="{QUOTED}#sha256={"0" * 64}">torch</a>'.encode()
    with serving({"/cu130/torch/": Reply(page)}) as other_server:
        host = Host(tmp_path, index, index=None, torch_index=f"{other_server.url}/cu130")
        host.bring()
        assert other_server.paths == ["/cu130/torch/"]
    assert (host.folder / NAME).read_bytes() == BODY
    assert (host.folder / "wheels" / FILE).read_bytes() == BODY
    assert not (host.folder / ".pip").exists()


@pytest.mark.slow
def test_a_host_that_downloads_shows_that_it_gets_on(tmp_path, index, monkeypatch):
    quick = functools.partial(growth_report.call_periodically, period_s=0.01)
    monkeypatch.setattr(growth_report, "call_periodically", quick)
    host = Host(tmp_path, index)
    beaten, looks = threading.Event(), []
    monkeypatch.setattr(announced_fetches.Claim, "show_sign_of_life", lambda claim: beaten.set())

    def answer(request):
        # As slow as a line that others must not lose patience with, who may wait for the wheel.
        assert beaten.wait(180)
        claim = announced_fetches.claims_folder(host.paths) / "engine-pytorch"
        looks.append((announced_fetches.is_held(claim), claim.read_text()))
        return Reply(BODY)

    host.folder.mkdir(parents=True)
    (host.folder / f"{NAME}.incomplete").write_bytes(BODY[:1000])
    index.answers[f"/whl/files/{QUOTED}"] = answer
    host.bring()
    assert beaten.is_set() and looks == [(True, f"{NAME}\n")]


@pytest.fixture
def fork(tmp_path: Path) -> Path:
    return a_fork(tmp_path / "fork")


def test_a_history_of_another_spark_costs_the_git_server_nothing(tmp_path, peer, index, fork):
    wanted_source = source(fork)
    first = Host(tmp_path / "first", index, packages=[], vllm=wanted_source)
    first.bring("vllm")
    bundle = (first.folder / wanted_source["commit"]).read_bytes()
    (peer.flat / wanted_source["commit"]).write_bytes(bundle)
    fork.rename(tmp_path / "gone")
    host = Host(tmp_path, index, peer.as_peer(), packages=[], vllm=wanted_source)
    host.bring("vllm")
    assert host.head() == first.head() == wanted_source["commit"]
    assert git(host.home / "vllm", "tag") == "v1"
    assert (host.home / "vllm/setup.py").read_text() == "ours"
    # And it can give it in turn.
    assert (host.folder / wanted_source["commit"]).read_bytes() == bundle


def test_a_history_that_has_not_the_commit_is_refused(tmp_path, peer, index, fork, capsys):
    old = Host(tmp_path / "first", index, packages=[], vllm=source(fork))
    old.bring("vllm")
    new = commit(fork)
    [bundle] = (path for path in old.folder.iterdir() if path.is_file())
    (peer.flat / new).write_bytes(bundle.read_bytes())
    host = Host(tmp_path, index, peer.as_peer(), packages=[], vllm=source(fork))
    host.bring("vllm")
    assert host.head() == new
    output = capsys.readouterr().out
    assert f"{new[:12]} from spark1 is not what its hash says; not used" in output
