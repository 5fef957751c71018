"""Weights: pinned, resumable, checked once, repaired, and borrowed files put in place."""

import base64
import contextlib
import errno
import hashlib
import http.client
import json
import os
import shutil
import ssl
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from a_peer import Spark, write_lease
from local_server import LocalServer, Reply, SeenRequest, serving

from lockstep.onhost.core import errors, layout
from lockstep.onhost.facts import weights as weights_facts
from lockstep.onhost.fetch import announced_fetches, peer_client, resumable_download
from lockstep.onhost.weights import fetch_weights, repository_download, weights_spec, weights_state

REVISION, BASE_REVISION = "a" * 40, "b" * 40
WEIGHTS = bytes(range(256)) * 4096  # 1 MiB
FILES = {
    f"org/small/{REVISION}": {
        "model-00001.safetensors": WEIGHTS,
        "model-00002.safetensors": WEIGHTS[::-1],
        "original/params.json": b"{}",
    },
    f"org/base/{BASE_REVISION}": {"config.json": b'{"base": true}'},
}
LARGE = ["model-00001.safetensors", "model-00002.safetensors"]
#: All files, as they lie in the folder for an engine, and their addresses at the hub.
CONTENT = {path: body for files in FILES.values() for path, body in files.items()}
ADDRESSES = {
    path: f"/{model.rpartition('/')[0]}/resolve/{model.rpartition('/')[2]}/{path}"
    for model, files in FILES.items()
    for path in files
}


@pytest.fixture
def hub():
    """A Hugging Face endpoint."""

    def answer(body: bytes, request: SeenRequest) -> Reply:
        start = int(request.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        return Reply(body[start:], 206 if start else 200)

    answers = {ADDRESSES[path]: partial(answer, body) for path, body in CONTENT.items()}
    with serving(answers) as server:
        yield server


@pytest.fixture
def elsewhere(hub):
    """Another server, to which the hub redirects requests."""
    with serving(hub.answers) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        for address in hub.answers:
            hub.answers[address] = Reply(b"", 302, {"Location": f"{url}{address}"})
        yield server


def fetched_files(hub: LocalServer) -> list[str]:
    """The files that were asked for."""
    return sorted(request.path.split("/", 5)[5] for request in hub.requests)


def logins(server: LocalServer) -> set[str | None]:
    return {request.headers.get("Authorization") for request in server.requests}


@pytest.fixture
def spec(tmp_path, hub):
    """One repository of three files, two of them LFS, that borrows a config.json."""
    repository = pinned_part("org/small", REVISION)
    repository |= {"borrow": [pinned_part("org/base", BASE_REVISION)], "refs": ["main"]}
    data = {"cache_dir": str(tmp_path / "huggingface/hub"), "endpoint": hub.url}
    path = tmp_path / "spec.json"
    path.write_text(json.dumps({**data, "repositories": [repository]}))
    return path


def pinned_part(model: str, revision: str) -> dict:
    """The files as the lock has them: SHA-256 of LFS files, git's id of the others."""
    files = [
        {"path": path, "size": len(body), **hash_of(path, body)}
        for path, body in FILES[f"{model}/{revision}"].items()
    ]
    return {"model": model, "revision": revision, "files": files}


def hash_of(path: str, body: bytes) -> dict[str, str]:
    if path.endswith(".safetensors"):
        return {"sha256": hashlib.sha256(body).hexdigest()}
    return {"blob": hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()}


def fetch(spec: Path, *options: str) -> int:
    return fetch_weights.main([str(spec), *options])


def state(spec: Path) -> dict:
    weights = weights_spec.parse_spec(spec.read_text())
    return weights_state.state(weights, weights.repositories[0])


def snapshot(spec: Path) -> Path:
    return weights_spec.parse_spec(spec.read_text()).snapshot_folder("org/small", REVISION)


def test_a_fetch_brings_what_is_missing_and_a_second_one_asks_nobody(spec, hub, capsys):
    weights_status = state(spec)
    assert weights_status["state"] == "incomplete"
    assert weights_status["missing"] == [*FILES[f"org/small/{REVISION}"], "org/base/config.json"]
    assert weights_status["bytes_present"] == 0
    assert weights_status["bytes_total"] == 2 * len(WEIGHTS) + 2
    assert fetch(spec) == 0
    assert state(spec)["state"] == "complete"
    assert fetched_files(hub) == sorted(CONTENT)
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first == "weights org/small: 0 of 3 files, 0.00 of 2.10 MB, from 127.0.0.1"
    assert last.startswith("weights org/small: complete at /")
    # Each blob has the name that the lock gives it.
    files = pinned_part("org/small", REVISION)["files"]
    names = [file.get("sha256") or file["blob"] for file in files]
    blobs = snapshot(spec).parent.parent / "blobs"
    assert sorted(path.name for path in blobs.iterdir()) == sorted(names)
    hub.requests.clear()
    assert fetch(spec) == 0
    assert hub.requests == []


def test_small_files_alone_promise_no_checkpoint_that_is_whole(spec, hub, monkeypatch, capsys):
    """The engine is asked about a checkpoint by its configuration, hours before its weights."""
    monkeypatch.setattr(weights_spec, "SMALL", 100)
    assert fetch(spec, "--small") == 0
    assert fetched_files(hub) == ["config.json", "original/params.json"]
    assert "complete" not in capsys.readouterr().out
    weights_status = state(spec)
    assert (weights_status["state"], weights_status["missing"]) == ("incomplete", LARGE)
    assert not Path(weights_status["path"]).exists()
    assert not (snapshot(spec).parents[1] / "refs/main").exists()
    hub.requests.clear()
    assert fetch(spec) == 0
    assert fetched_files(hub) == LARGE
    assert state(spec)["state"] == "complete"


def test_the_engine_gets_a_folder_with_own_and_borrowed_files_at_any_mount_point(spec, tmp_path):
    fetch(spec)
    merged_folder = tmp_path / f"huggingface/lockstep-merged/org--small/{REVISION}"
    assert state(spec)["path"] == str(merged_folder)
    assert not (snapshot(spec) / "config.json").exists(), "the snapshot stays as upstream made it"

    from huggingface_hub import snapshot_download

    cache = tmp_path / "huggingface/hub"
    path = snapshot_download("org/small", cache_dir=cache, local_files_only=True)
    assert Path(path) == snapshot(spec), "an offline engine that asks for main"

    (tmp_path / "huggingface").rename(tmp_path / "elsewhere")
    merged_folder = tmp_path / f"elsewhere/lockstep-merged/org--small/{REVISION}"
    paths = (path for path in merged_folder.rglob("*") if path.is_file())
    assert {str(path.relative_to(merged_folder)): path.read_bytes() for path in paths} == CONTENT


def truncate_file(link: Path):
    os.truncate(link.resolve(), 100)


def truncated_and_unlinked(link: Path):
    truncate_file(link)
    link.unlink()


def change_file(link: Path):
    link.resolve().write_bytes(bytes(link.stat().st_size))
    os.utime(link.resolve(), ns=(1, 1))


@pytest.mark.parametrize(
    ("harm", "path", "fault_key", "fault_name"),
    [
        (truncate_file, LARGE[0], "wrong_size", LARGE[0]),
        (truncated_and_unlinked, LARGE[0], "missing", LARGE[0]),
        (change_file, LARGE[0], "unverified", LARGE[0]),
        (change_file, "config.json", "unverified", "org/base/config.json"),
    ],
)
def test_a_file_that_was_harmed_is_found_without_reading_and_fetched_again(
    spec, hub, harm, path, fault_key, fault_name
):
    fetch(spec)
    cache = weights_spec.parse_spec(spec.read_text()).cache_dir
    harm(next(cache.glob(f"models--*/snapshots/*/{path}")))
    assert state(spec)[fault_key] == [fault_name]
    hub.requests.clear()
    assert fetch(spec) == 0
    assert fetched_files(hub) == [path]
    engines_folder = Path(state(spec)["path"])
    assert {path: (engines_folder / path).read_bytes() for path in CONTENT} == CONTENT
    assert state(spec)["state"] == "complete"


@pytest.mark.parametrize(
    ("path", "repository"),
    [
        (LARGE[0], "org/small@aaaaaaaaaaaa"),
        ("config.json", "org/base@bbbbbbbbbbbb"),
    ],
)
def test_what_came_corrupt_is_fetched_again_once_and_then_given_up_with_a_remedy(
    spec, hub, capsys, path, repository
):
    spoiled_replies = [Reply(bytes(len(CONTENT[path])))]
    right = Reply(CONTENT[path])
    hub.answers[ADDRESSES[path]] = lambda _: spoiled_replies.pop() if spoiled_replies else right
    assert fetch(spec) == 0
    assert fetched_files(hub).count(path) == 2
    assert "what came is not what its hash says; fetching it again" in capsys.readouterr().out
    assert state(spec)["state"] == "complete"
    cache = weights_spec.parse_spec(spec.read_text()).cache_dir
    shutil.rmtree(cache)
    hub.requests.clear()
    spoiled_replies += 9 * [Reply(bytes(len(CONTENT[path])))]
    message = f"{repository} {path}: corrupt, also after fetching it again. Remedy: check"
    with pytest.raises(errors.Problem, match=f"{message} .* the source {hub.url}"):
        fetch(spec)
    assert fetched_files(hub).count(path) == 2
    # It is thrown away.
    assert not list(cache.glob(f"models--*/snapshots/*/{path}"))
    assert all(any(blob.read_bytes()) for blob in cache.glob("*/blobs/*"))


def test_files_are_read_once_and_not_fetched_again(spec, hub, monkeypatch):
    fetch(spec)
    weights = weights_spec.parse_spec(spec.read_text())
    shutil.rmtree(weights.stamps_folder)
    hub.requests.clear()
    assert fetch(spec) == 0
    assert (hub.requests, state(spec)["state"]) == ([], "complete")
    for name in ("sha256", "sha1"):
        monkeypatch.setattr(hashlib, name, Mock(side_effect=AssertionError("a weight was read")))
    peers, claim = peer_client.Copier(None), announced_fetches.Claim(None)
    store = repository_download.WeightsStore(weights, None, peers, claim)
    parts = weights.repositories[0].own_and_borrowed_parts
    assert [store.corrupt_files(part) for part in parts] == [[], []]


def test_what_stat_does_not_show_is_found_by_reading_own_small_and_borrowed_files(spec):
    fetch(spec)
    question = {"weights": json.loads(spec.read_text()), "deep": True}
    assert {kind for kind, _, _ in weights_facts.every(question)} == {"weights"}
    paths = list(snapshot(spec).parents[2].glob("models--*/snapshots/*/**/*.*"))
    for path in paths:
        earlier_stat = path.stat()
        path.write_bytes(bytes(earlier_stat.st_size))
        os.utime(path, ns=(earlier_stat.st_atime_ns, earlier_stat.st_mtime_ns))
    quick_facts = list(weights_facts.every({**question, "deep": False}))
    assert {kind for kind, _, _ in quick_facts} == {"weights"}
    content_findings = {("weights content", str(path), "other content") for path in paths}
    assert len(paths) == len(CONTENT)
    assert set(weights_facts.every(question)) == {*quick_facts, *content_findings}


def test_the_token_is_sent_to_the_hub_and_to_no_other_host(spec, hub, elsewhere, tmp_path):
    (tmp_path / "token").write_text("hf_s3cret\n")
    assert fetch(spec, "--token-file", str(tmp_path / "token")) == 0
    assert (logins(hub), logins(elsewhere)) == ({"Bearer hf_s3cret"}, {None})


def test_a_mirrors_login_is_sent_to_the_mirror_alone_and_shown_nowhere(
    spec, hub, elsewhere, tmp_path, capsys
):
    text = spec.read_text().replace("http://", "http://anna:g%40heim@")
    spec.write_text(text)
    (tmp_path / "token").write_text("hf_s3cret\n")
    assert fetch(spec, "--token-file", str(tmp_path / "token")) == 0
    login = "Basic " + base64.b64encode(b"anna:g@heim").decode()
    assert (logins(hub), logins(elsewhere)) == ({login}, {None})
    shutil.rmtree(weights_spec.parse_spec(text).cache_dir)
    hub.answers = dict.fromkeys(hub.answers, Reply(status=401))
    with pytest.raises(errors.Problem, match=rf"{hub.url} refuses the login \(HTTP 401\)") as error:
        fetch(spec)
    assert error.value.code == 3
    assert "heim" not in f"{error.value}{capsys.readouterr()}"


def test_a_redirect_of_the_transfer_itself_loses_the_token_too(hub, elsewhere, tmp_path):
    url = hub.url + ADDRESSES["config.json"]
    source = resumable_download.DownloadSource(url, None, {"Authorization": "Bearer hf_s3cret"})
    name = hash_of("config.json", CONTENT["config.json"])["blob"]
    resumable_download.download(lambda: source, tmp_path / "config.json", name)
    assert (tmp_path / "config.json").read_bytes() == CONTENT["config.json"]
    assert (logins(hub), logins(elsewhere)) == ({"Bearer hf_s3cret"}, {None})


@pytest.mark.parametrize(
    "fault", [None, ssl.SSLEOFError(8, "EOF"), OSError(errno.EHOSTUNREACH, "No route")], ids=str
)
def test_a_line_that_breaks_in_the_middle_is_taken_up_again(spec, hub, monkeypatch, fault):
    monkeypatch.setattr("time.sleep", lambda _: None)
    real_read, broken_responses = http.client.HTTPResponse.read, []

    def break_off(response, size=None):
        if broken_responses[:1] == [response]:
            if fault:
                raise fault
            return b""
        if not broken_responses and response.length == len(WEIGHTS):
            broken_responses.append(response)
            size = 1000
        return real_read(response, size)

    monkeypatch.setattr(http.client.HTTPResponse, "read", break_off)
    assert fetch(spec) == 0
    # Asked of the hub again, for a signed address may have expired.
    assert "bytes=1000-" in [request.headers.get("Range") for request in hub.requests]
    assert state(spec)["state"] == "complete"


@pytest.mark.parametrize(
    ("status", "error_code", "code", "words"),
    [
        (403, "GatedRepo", 3, r"access is gated. Remedy: accept the licence at .*/org/small"),
        (401, "RepoNotFound", 4, "does not exist or is private"),
        (404, "EntryNotFound", 4, "compare revision and file list"),
        (500, "", 1, "check network and proxy, then run again; it resumes"),
    ],
)
def test_a_hub_that_refuses_is_explained(spec, hub, monkeypatch, status, error_code, code, words):
    monkeypatch.setattr("time.sleep", lambda _: None)
    refusal = Reply(b"", status, {"X-Error-Code": error_code})
    hub.answers = dict.fromkeys(hub.answers, refusal)
    with pytest.raises(errors.Problem, match=words) as problem:
        fetch(spec)
    assert problem.value.code == code


def test_a_disk_that_is_too_small_is_refused_before_the_first_byte(spec, hub, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1_000_000))
    # What an earlier fetch had begun is there already.
    begun_file = (
        snapshot(spec).parents[1] / f"blobs/{hash_of(LARGE[0], WEIGHTS)['sha256']}.incomplete"
    )
    begun_file.parent.mkdir(parents=True)
    begun_file.write_bytes(WEIGHTS[:500_000])
    with pytest.raises(errors.Problem, match=r"1.6 MB to fetch, 1.0 MB free under") as problem:
        fetch(spec)
    assert problem.value.code == 5
    assert hub.requests == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d["repositories"][0].update(revision="main"), "is not a commit of 40 hex"),
        (lambda d: d["repositories"][0].update(model="../x"), "is not ORG/NAME; found '../x'"),
        (
            lambda d: d["repositories"][0]["files"][0].update(path="../../etc/passwd"),
            r"path is not a path inside the repository; found '../../etc/passwd'",
        ),
        (lambda d: d["repositories"][0]["files"][1].pop("sha256"), "has no hash"),
    ],
)
def test_a_wrong_specification_names_key_and_allowed(spec, change, words):
    data = json.loads(spec.read_text())
    change(data)
    spec.write_text(json.dumps(data))
    with pytest.raises(errors.Problem, match=words) as problem:
        fetch(spec)
    assert problem.value.code == 2


def test_a_token_file_that_is_not_there_means_no_token_and_one_that_cannot_be_read_is_named(
    spec, hub, tmp_path
):
    assert fetch(spec, "--token-file", str(tmp_path / "token")) == 0
    assert logins(hub) == {None}
    with pytest.raises(errors.Problem, match="Is a directory") as problem:
        fetch(spec, "--token-file", str(tmp_path))
    assert problem.value.code == 2


def test_a_host_whose_peer_has_everything_asks_the_hub_for_nothing(tmp_path, spec, hub):
    peer = Spark(tmp_path, "spark1")
    for path, body in CONTENT.items():
        peer.has(body, hash_of(path, body).popitem()[1])
    own_paths = layout.Paths(tmp_path / "spark2")
    write_lease(own_paths, peer.as_peer())
    with contextlib.closing(peer):
        assert fetch_weights.main([str(spec)], own_paths) == 0
    assert hub.requests == []
    assert state(spec)["state"] == "complete"
