"""Model repositories become a commit and a list of files, by the hub's own API."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from local_server import LocalServer, Reply, SeenRequest, as_json, refused_address, serving

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
    with serving({MAIN: info()}) as server:
        assert resolve(server) == CheckpointPin("main", COMMIT, FILES)
    assert server.paths == [f"{MAIN}?blobs=true"]
    assert "Authorization" not in server.requests[0].headers


def test_a_revision_with_a_slash_stays_one_part_of_the_address() -> None:
    with serving({"/api/models/org/name/revision/refs%2Fpr%2F1": info()}) as server:
        assert resolve(server, revision="refs/pr/1").commit == COMMIT


def test_who_borrows_files_gets_only_these() -> None:
    with serving({MAIN: info()}) as server:
        pin = resolve(server, "config.json")
        assert pin == CheckpointPin("main", COMMIT, FILES[:1], partial=True)
        assert failure(server, "config.json", "vocab.json") == (
            "org/name: the repository lacks vocab.json; found 3 files at main. "
            "Correct the file names or the revision in the recipe."
        )


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
        (GGUF, (":Q8_0",), GGUF[2:3]),
        (GGUF[:3], (":Q4", ":mmproj?"), GGUF[:2]),
        (GGUF[:3], (":Q4", ":mmproj"), "lacks :mmproj; found 3 files at main. Set lockstep.vision"),
        (GGUF[1:], (":Q4",), "a part of the model is not in the repository: Q4/m-00001-of-00002"),
    ],
)
def test_a_gguf_model_is_pinned_with_all_its_parts_and_what_sees(
    names: tuple[str, ...], wanted_files: tuple[str, ...], outcome: tuple[str, ...] | str
) -> None:
    siblings = [{"rfilename": name, "size": 9, "blobId": BLOB} for name in names]
    with serving({MAIN: info(siblings=siblings)}) as server:
        if isinstance(outcome, str):
            assert outcome in failure(server, *wanted_files)
            return
        pin = resolve(server, *wanted_files)
    assert (tuple(file.path for file in pin.files), pin.partial) == (outcome, True)
    assert sum(pin.left_out.values()) == 9 * (len(names) - len(outcome))
    assert has(
        Pins(checkpoints={"org/name": pin}), CheckpointItem("org/name", "main", wanted_files)
    )


def test_a_mirror_that_leaves_sizes_out_is_asked_for_the_tree() -> None:
    bare = [{"rfilename": "config.json"}]

    def entry(path: str, size: int, kind: str = "file", **more: Any) -> dict[str, Any]:
        return {"type": kind, "path": path, "oid": BLOB, "size": size, **more}

    first = [entry("sub", 0, "directory"), entry("config.json", 12)]
    lfs = {"oid": SHA256, "size": 1000, "pointerSize": 134}
    second = [entry("sub/empty", 0), entry("model.safetensors", 1000, lfs=lfs)]
    tree = f"/api/models/org/name/tree/{COMMIT}"

    def pages(request: SeenRequest) -> Reply:
        if "cursor=2" in request.path:
            return as_json(second)
        return as_json(first, Link=f'<{tree}?cursor=2>; rel="next"')

    with serving({MAIN: info(siblings=bare), tree: pages}) as server:
        assert resolve(server) == CheckpointPin("main", COMMIT, FILES)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_mirrors_login_is_kept_from_page_to_page_of_the_same_server(elsewhere: bool) -> None:
    tree = f"/api/models/org/name/tree/{COMMIT}"
    page = [{"type": "file", "path": "config.json", "oid": BLOB, "size": 12}]
    with serving({tree: as_json(page)}) as other_server:

        def first(request: SeenRequest) -> Reply:
            if "cursor" in request.path:
                return as_json(page)
            host = other_server.host if elsewhere else request.headers["Host"]
            return as_json([], Link=f'<http://{host}{tree}?cursor=2>; rel="next"')

        with serving({MAIN: info(siblings=[{"rfilename": "x"}]), tree: first}) as server:
            private = Sources(hub=server.url.replace("http://", "http://anna:geheim@"))
            pin = resolve_checkpoint(CheckpointItem("org/name", "main"), Network(private))
    assert [file.path for file in pin.files] == ["config.json"]
    assert all("Authorization" in request.headers for request in server.requests)
    assert all("Authorization" not in request.headers for request in other_server.requests)
    assert len(other_server.requests) == elsewhere


@pytest.mark.parametrize("place", ["variable", "file", "named file"])
def test_the_users_token_is_sent(
    place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if place == "variable":
        monkeypatch.setenv("HF_TOKEN", "hf_token")
    else:
        path = tmp_path / ("hf/token" if place == "file" else "elsewhere")
        path.parent.mkdir(exist_ok=True)
        path.write_text("hf_token\n")
        if place == "named file":
            monkeypatch.setenv("HF_TOKEN_PATH", str(path))
    with serving({MAIN: info()}) as server:
        resolve(server)
    assert server.requests[0].headers["Authorization"] == "Bearer hf_token"


def test_a_token_that_is_none_is_refused_without_being_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_TOKEN", "my secret")
    with pytest.raises(ResolveError) as error:
        hub_token()
    assert "the hub token is not a token; found 9 characters" in str(error.value)
    assert "secret" not in str(error.value)


def gated_replies(status: int) -> dict[str, Reply]:
    """A gated repository shows its files to everybody, and gives them to nobody without access."""
    file = f"/org/name/resolve/{COMMIT}/model.safetensors"
    elsewhere = {"Location": f"http://{refused_address()}/content"}
    return {MAIN: info(gated="manual"), file: Reply(status=status, headers=elsewhere)}


def test_a_licence_that_was_not_accepted_is_found_before_anything_is_fetched() -> None:
    with serving(gated_replies(401)) as server:
        assert failure(server) == (
            "org/name: the licence of this model was not accepted; found HTTP 401, no token. "
            f"Open {server.url}/org/name and accept it there, then set HF_TOKEN to a token of "
            f"{server.url}/settings/tokens."
        )
    assert server.requests[-1].method == "HEAD"


def test_a_token_without_access_is_told_to_accept_the_licence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_token")
    with serving(gated_replies(403)) as server:
        message = failure(server)
    assert "found HTTP 403, with a token. Open" in message
    assert "accept it with the account of this token." in message
    assert "hf_token" not in message


@pytest.mark.parametrize("status", [200, 302])
def test_a_gated_model_with_access_resolves(status: int) -> None:
    with serving(gated_replies(status)) as server:
        assert resolve(server).files == FILES


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (as_json({}, 404, X_Error_Code="RevisionNotFound"), "has no revision 'main'"),
        (as_json({}, 401, X_Error_Code="RepoNotFound"), "found HTTP 401 (RepoNotFound) from "),
        (as_json({}, 404), "the hub shows no such repository without a token; found HTTP 404"),
        (as_json({}, 403, X_Error_Code="GatedRepo"), "the licence of this model was not accepted"),
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


@pytest.mark.parametrize(
    ("config", "experts"),
    [
        ({"num_experts": 128, "quantization_config": {"quant_method": "fp8"}}, "quantised"),
        ({"text_config": {"n_routed_experts": 64}}, "plain"),
        ({"num_local_experts": 8, "torch_dtype": "bfloat16"}, "plain"),
        ({"num_hidden_layers": 4, "num_experts": 0}, "none"),
    ],
)
def test_a_configuration_says_whether_a_model_is_a_mixture_of_experts(
    config: dict[str, Any], experts: str
) -> None:
    path = f"/org/name/resolve/{COMMIT}/config.json"
    item = CheckpointItem("org/name", "main", experts=True)
    with serving({MAIN: info(), path: as_json(config)}) as server:
        pin = resolve_checkpoint(item, Network(Sources(hub=server.url)))
        assert resolve(server).experts is None
    assert pin == replace(CheckpointPin("main", COMMIT, FILES), experts=experts)
    assert server.paths.count(path) == 1
    # A lock that was written before is asked again once, and stays at its commit.
    for model_pin, enough in ((pin, True), (replace(pin, experts=None), False)):
        assert has(Pins(checkpoints={"org/name": model_pin}), item) is enough
    bare = replace(pin, experts=None, files=FILES[1:])
    assert has(Pins(checkpoints={"org/name": bare}), item)
