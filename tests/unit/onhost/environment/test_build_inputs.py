"""The parts of an engine come from other Sparks that have them, checked as ever."""

import base64
import functools
import hashlib
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from a_peer import Spark, write_lease
from a_probe import program
from a_repository import commit, fork, git, source
from local_server import LocalServer, Reply, serving

from lab.packages.wheels import StandInWheel, write_wheel
from lockstep.onhost.core import errors, layout
from lockstep.onhost.environment import build_inputs, wheel_store
from lockstep.onhost.fetch import announced_fetches, growth_report, peer_client


def built_wheel(name: str, version: str) -> tuple[dict[str, Any], bytes]:
    """The entry of a wheel that pip takes, and its bytes."""
    wheel = StandInWheel(name, version, files=((f"{name}.txt", "".join(map(str, range(60_000)))),))
    with tempfile.TemporaryDirectory() as folder:
        path = write_wheel(wheel, Path(folder))
        body = path.read_bytes()
    package = {"name": name, "version": version, "file": path.name, "size": None}
    return {**package, "sha256": hashlib.sha256(body).hexdigest(), "stage": "pytorch"}, body


OTHER, OTHER_BODY = built_wheel("other", "1.0")
PACKAGE, BODY = built_wheel("torch", "2.10.0+cu130")

FILE, NAME = PACKAGE["file"], PACKAGE["sha256"]
QUOTED = FILE.replace("+", "%2B")


HTML = {"Content-Type": "text/html"}


@pytest.fixture(autouse=True)
def _own_pip(monkeypatch):
    """pip as on a host that is not configured."""
    for name in os.environ:
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)


@pytest.fixture
def peer(tmp_path, monkeypatch):
    monkeypatch.setattr(peer_client, "POLL_S", 0.01)
    spark = Spark(tmp_path, "spark1")
    yield spark
    spark.close()


@pytest.fixture
def index():
    """An index without hashes in its links and without sizes, as PyTorch's was."""
    page = f'<a href="../files/{QUOTED}">torch</a>'.encode()
    file = f"/whl/files/{QUOTED}"
    with serving({"/whl/torch/": Reply(page, 200, HTML), file: Reply(BODY)}) as server:
        yield server


class Host:
    """The second Spark, which builds."""

    def __init__(self, root: Path, index: LocalServer, /, *of: peer_client.Peer, **spec: Any):
        self.paths = layout.Paths(root / "host")
        self.folder = root / "engines/store"
        self.home = root / "engines/0123456789ab"
        write_lease(self.paths, *of)
        absent = ("precompiled", "torch_index", "flashinfer_index", *build_inputs.TREES)
        self.spec = {"packages": [PACKAGE], "built_with": [], **dict.fromkeys(absent)}
        self.spec |= {"index": f"{index.url}/whl", "tools": sys.executable, **spec}

    def bring(self, stage: str = "pytorch") -> None:
        content = build_inputs.Content(self.spec, stage, self.folder)
        with content.hold_copy_claim(self.paths):
            content.bring_wheels()
            content.bring_trees(self.home, self._run)

    def _run(self, *argv: str) -> None:
        if subprocess.run(argv, capture_output=True, check=False).returncode != 0:
            raise errors.Problem("it failed")

    def head(self) -> str:
        return git(self.home / "vllm", "rev-parse", "HEAD")


def test_a_wheel_of_another_spark_costs_the_index_nothing(tmp_path, peer, index, capsys):
    (peer.flat / NAME).write_bytes(BODY)
    host = Host(tmp_path, index, peer.as_peer())
    host.bring()
    assert (host.folder / "wheels" / FILE).read_bytes() == BODY
    assert index.requests == []
    assert "engine, pytorch: 0.3 MB copied from spark1\n" in capsys.readouterr().out


@pytest.mark.slow
def test_of_a_pip_that_was_cut_off_whole_files_are_kept_and_half_ones_are_not(tmp_path, index):
    host = Host(tmp_path, index, packages=[OTHER, PACKAGE])
    # pip has each file in a folder for itself until all of them are there.
    for name, file, content in (("x", OTHER["file"], OTHER_BODY), ("y", FILE, BODY[:1000])):
        path = host.folder / f".pip/pip-unpack-{name}" / file
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    host.bring()
    assert (host.folder / NAME).read_bytes() == BODY
    assert (host.folder / OTHER["sha256"]).read_bytes() == OTHER_BODY
    assert not (host.folder / ".pip").exists()


def test_small_wheels_share_a_run_of_pip_and_a_large_one_has_its_own():
    def wheel(name: str, size: int | None) -> wheel_store.Wheel:
        return wheel_store.Wheel(name, "1", f"{name}.whl", name, size)

    half = wheel_store.BATCH // 2
    every = [wheel("large", 2 * half), wheel("a", half), wheel("b", half)]
    every += [wheel("c", None), wheel("c", None)]
    batches = [[package.name for package in batch] for batch in wheel_store._batches(every)]
    # pip refuses two versions of one package.
    assert batches == [["large"], ["a", "b"], ["c"], ["c"]]


@pytest.mark.slow
def test_a_password_is_for_its_own_server_and_on_no_command_line(tmp_path, index, capfd):
    def passwords(server: LocalServer) -> list[str | None]:
        return [request.headers.get("Authorization") for request in server.requests]

    login, basic = "http://me:s3cret@", "Basic " + base64.b64encode(b"me:s3cret").decode()
    page = f'<a href="{index.url}/whl/files/{QUOTED}#sha256={NAME}">torch</a>'.encode()
    with serving({"/private/torch/": Reply(page, 200, HTML)}) as private:
        script = f'echo "$@" >> {tmp_path}/argv\nexec {sys.executable} "$@"'
        tools = str(program(tmp_path / "bin", "python", script))
        host = Host(tmp_path, index, index=f"{login}{private.host}/private", tools=tools)
        host.bring()
        assert (passwords(private), passwords(index)) == ([basic], [None])
    # The wheel of compiled parts is no package of an index.
    url = f"{login}{index.host}/whl/files/{QUOTED}"
    pip = wheel_store.Pip(tools, wheel_store.pip_index_variables(None, [], [url]))
    store = wheel_store.WheelStore(tmp_path / "two", pip, peer_client.Copier(None))
    store.bring_wheels("vllm", [wheel_store.Wheel("torch", "1", FILE, NAME, None, url)])
    assert passwords(index)[-1] == basic
    output = capfd.readouterr()
    argv = (tmp_path / "argv").read_text()
    assert argv.count("pip download") == 2 and "s3cret" not in argv + output.out + output.err


@pytest.mark.slow
def test_other_bytes_than_were_locked_are_refused_with_a_remedy(tmp_path, index):
    index.answers[f"/whl/files/{QUOTED}"] = Reply(OTHER_BODY)
    host = Host(tmp_path, index, index=f"http://me:s3cret@{index.host}/whl")
    with pytest.raises(errors.Problem) as error:
        host.bring()
    message = str(error.value)
    assert message.startswith(f"pip could not fetch {FILE}: ")
    assert f"Expected sha256 {NAME} Got" in message
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


def test_a_history_comes_from_another_spark_unless_it_lacks_the_commit(
    tmp_path, peer, index, capsys
):
    folder = fork(tmp_path / "fork")
    old_source, old = source(folder), git(folder, "rev-parse", "HEAD")
    first = Host(tmp_path / "first", index, packages=[], vllm=old_source)
    first.bring("vllm")
    bundle = (first.folder / old).read_bytes()
    new = commit(folder)
    for name in (old, new):
        (peer.flat / name).write_bytes(bundle)
    host = Host(tmp_path / "second", index, peer.as_peer(), packages=[], vllm=source(folder))
    host.bring("vllm")
    assert host.head() == new
    output = capsys.readouterr().out
    assert f"{new[:12]} from spark1 is not what its hash says; not used" in output
    # What another Spark has costs the git server nothing.
    folder.rename(tmp_path / "gone")
    host = Host(tmp_path, index, peer.as_peer(), packages=[], vllm=old_source)
    host.bring("vllm")
    assert host.head() == old
    assert git(host.home / "vllm", "tag") == "v1"
    # And it can give it in turn.
    assert (host.folder / old).read_bytes() == bundle
