"""Model repositories become a commit and a list of files, by the hub's own API."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from local_server import LocalServer, Reply, SeenRequest, as_json, serving

from lockstep.core.errors import ResolveError
from lockstep.inventory.settings import Sources
from lockstep.lock.moving import CheckpointItem
from lockstep.lock.pins import CheckpointPin, FilePin, Pins, has
from lockstep.lock.resolve.http import Network
from lockstep.lock.resolve.hub import hub_token, resolve_checkpoint

COMMIT = "0123456789abcdef0123456789abcdef01234567"
BLOB = "89" * 20
SHA256 = "ab" * 32
WEIGHTS = {
    "rfilename": "model.safetensors",
    "size": 1000,
    "blobId": BLOB,
    "lfs": {"sha256": SHA256, "size": 1000, "pointerSize": 134},
}
CONFIG = {"rfilename": "config.json", "size": 12, "blobId": BLOB}
EMPTY = {"rfilename": "sub/empty", "size": 0, "blobId": BLOB}
FILES = (
    FilePin("config.json", 12, None, BLOB),
    FilePin("model.safetensors", 1000, SHA256),
    FilePin("sub/empty", 0, None, BLOB),
)
MAIN = "/api/models/org/name/revision/main"


def info(**more: Any) -> Reply:
    return as_json({"sha": COMMIT, "gated": False, "siblings": [WEIGHTS, EMPTY, CONFIG]} | more)


def resolve(server: LocalServer, *files: str, **more: Any) -> CheckpointPin:
    item = CheckpointItem("org/name", **{"revision": "main", "files": files, **more})
    return resolve_checkpoint(item, Network(Sources(hub=f"{server.url}/")))


def failure(server: LocalServer, *files: str) -> str:
    with pytest.raises(ResolveError) as error:
        resolve(server, *files)
    return str(error.value)


def test_a_branch_becomes_a_commit_with_all_files_and_their_hashes() -> None:
    with serving({MAIN.replace("main", "refs%2Fpr%2F1"): info()}) as server:
        assert resolve(server, revision="refs/pr/1") == CheckpointPin("refs/pr/1", COMMIT, FILES)
    assert "Authorization" not in server.requests[0].headers


def test_who_borrows_files_gets_only_these() -> None:
    with serving({MAIN: info()}) as server:
        pin = resolve(server, "config.json")
        assert pin == CheckpointPin("main", COMMIT, FILES[:1], partial=True)
        message = failure(server, "config.json", "vocab.json")
    assert message.startswith("org/name: the repository lacks vocab.json; found 3 files at main.")


def test_a_second_copy_of_the_weights_is_not_pinned_and_its_size_is_kept() -> None:
    more = [
        {"rfilename": name, "size": 9, "blobId": BLOB}
        for name in ("original/a.pth", "original/params.json", "consolidated.safetensors")
    ]
    index = {"rfilename": "model.safetensors.index.json", "size": 1, "blobId": BLOB}
    weight_index = as_json({"weight_map": {"a": "model.safetensors"}})
    replies = {
        MAIN: info(siblings=[WEIGHTS, CONFIG, index, *more]),
        f"/org/name/resolve/{COMMIT}/{index['rfilename']}": weight_index,
    }
    item = CheckpointItem("org/name", "main", formats=("*.safetensors",))
    with serving(replies) as server:
        pin = resolve(server, formats=item.formats)
    paths = ["config.json", "model.safetensors", "model.safetensors.index.json"]
    assert [file.path for file in pin.files] == paths
    assert pin.left_out == {"original/": 18, "consolidated.safetensors": 9}
    pins = Pins(checkpoints={"org/name": pin})
    assert has(pins, item) and not has(pins, CheckpointItem("org/name", "main"))
    assert not has(pins, replace(item, formats=(*item.formats, "consolidated*.safetensors")))


GGUF = ("Q4/m-00001-of-00002.gguf", "Q4/m-00002-of-00002.gguf", "m-Q8_0.gguf", "mmproj-F16.gguf")


@pytest.mark.parametrize(
    ("names", "wanted_files", "outcome"),
    [
        (GGUF, (":Q4", ":mmproj?"), (*GGUF[:2], GGUF[3])),
        (GGUF[:3], (":Q4", ":mmproj?"), GGUF[:2]),
        (GGUF[:3], (":Q4", ":mmproj"), "lacks :mmproj; found 3 files at main. Set lockstep.vision"),
        (GGUF[1:], (":Q4",), "a part of the model is not in the repository: Q4/m-00001-of-00002"),
    ],
)
def test_a_gguf_model_is_pinned_with_all_its_parts_and_what_sees(names, wanted_files, outcome):
    siblings = [{"rfilename": name, "size": 9, "blobId": BLOB} for name in names]
    with serving({MAIN: info(siblings=siblings)}) as server:
        if isinstance(outcome, str):
            assert outcome in failure(server, *wanted_files)
            return
        pin = resolve(server, *wanted_files)
    assert (tuple(file.path for file in pin.files), pin.partial) == (outcome, True)
    assert sum(pin.left_out.values()) == 9 * (len(names) - len(outcome))
    item = CheckpointItem("org/name", "main", wanted_files)
    assert has(Pins(checkpoints={"org/name": pin}), item)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_mirror_without_sizes_is_asked_for_its_tree_and_logins_stay_there(elsewhere, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_token")
    tree, lfs = f"/api/models/org/name/tree/{COMMIT}", {"oid": SHA256, "size": 1000}
    first_page = [
        {"type": "directory", "path": "sub", "oid": BLOB, "size": 0},
        {"type": "file", "path": "config.json", "oid": BLOB, "size": 12},
        {"type": "file", "path": "model.safetensors", "oid": BLOB, "size": 134, "lfs": lfs},
    ]
    last_page = [{"type": "file", "path": "sub/empty", "oid": BLOB, "size": 0}]
    with serving({tree: as_json(last_page)}) as other_server:

        def page(request: SeenRequest) -> Reply:
            if "cursor" in request.path:
                return as_json(last_page)
            host = other_server.host if elsewhere else request.headers["Host"]
            return as_json(first_page, Link=f'<http://{host}{tree}?cursor=2>; rel="next"')

        with serving({MAIN: info(siblings=[{"rfilename": "x"}]), tree: page}) as server:
            private = Sources(hub=server.url.replace("http://", "http://anna:geheim@"))
            pin = resolve_checkpoint(CheckpointItem("org/name", "main"), Network(private))
    assert pin == CheckpointPin("main", COMMIT, FILES)
    assert all("Authorization" in request.headers for request in server.requests)
    assert all("Authorization" not in request.headers for request in other_server.requests)
    assert len(other_server.requests) == elsewhere


def test_the_users_token_is_of_a_variable_or_a_file_and_is_never_shown(monkeypatch, tmp_path: Path):
    (tmp_path / "hf").mkdir()
    for place in ("hf/token", "named"):
        (tmp_path / place).write_text(f"hf_of_{place}\n")
    assert hub_token() == "hf_of_hf/token"
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "named"))
    assert hub_token() == "hf_of_named"
    monkeypatch.setenv("HF_TOKEN", "my secret")
    with pytest.raises(ResolveError, match="the hub token is not a token; found 9 char") as error:
        hub_token()
    assert "secret" not in str(error.value)


def test_a_token_without_access_to_a_gated_model_is_told_to_accept_the_licence(monkeypatch):
    """Its files are listed to everybody."""
    monkeypatch.setenv("HF_TOKEN", "hf_token")
    file = f"/org/name/resolve/{COMMIT}/model.safetensors"
    with serving({MAIN: info(gated="manual"), file: Reply(status=403)}) as server:
        message = failure(server)
    assert "the licence of this model was not accepted; found HTTP 403, with a token" in message
    assert "accept it with the account of this token." in message
    assert "hf_token" not in message
    assert [request.method for request in server.requests] == ["GET", "HEAD"]
    assert server.requests[0].headers["Authorization"] == "Bearer hf_token"


def test_a_configuration_is_asked_once_whether_the_model_is_a_mixture_of_experts():
    path = f"/org/name/resolve/{COMMIT}/config.json"
    item = CheckpointItem("org/name", "main", experts=True)
    with serving({MAIN: info(), path: as_json({"num_local_experts": 8})}) as server:
        pin = resolve_checkpoint(item, Network(Sources(hub=server.url)))
        assert resolve(server).experts is None
    assert pin == replace(CheckpointPin("main", COMMIT, FILES), experts="plain")
    # A lock that was written before is asked again, once; and never without a configuration.
    older = replace(pin, experts=None)
    bare = replace(older, files=FILES[1:])
    answers = [has(Pins(checkpoints={"org/name": entry}), item) for entry in (pin, older, bare)]
    assert answers == [True, False, True]


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (as_json({}, 404, X_Error_Code="RevisionNotFound"), "has no revision 'main'"),
        (as_json({}, 404), "the hub shows no such repository without a token; found HTTP 404"),
        (Reply(status=418), "the hub's answer cannot be used; found HTTP 418"),
        (as_json([]), "the hub's answer cannot be used; found no commit ('')"),
        (info(sha="v1"), "found no commit ('v1')"),
        (info(siblings=[]), "org/name: the repository is empty; found 0 files at main."),
        (info(siblings=[{**CONFIG, "rfilename": "../../x"}]), "found a file named '../../x'"),
        (info(siblings=[{**CONFIG, "size": None}]), "found no size of config.json"),
        (info(siblings=[{**CONFIG, "blobId": None}]), "found no hash of config.json"),
    ],
)
def test_what_the_hub_refuses_is_explained(reply: Reply, message: str) -> None:
    with serving({MAIN: reply}) as server:
        assert message in failure(server)
