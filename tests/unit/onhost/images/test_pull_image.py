"""Images: fetched by hash, given to Docker by digest, proven, and every failure explained."""

import base64
import contextlib
import hashlib
import json
import socket

import pytest
from a_peer import Spark, write_lease
from lab_servers import free_port
from local_server import Reply, SeenRequest, as_json, serving
from onhost_fakes import FakeDocker

from lockstep.onhost.core import errors, layout
from lockstep.onhost.fetch import announced_fetches, peer_client
from lockstep.onhost.images import image_blob_store, loopback_registry, pull_image, registry_client

BODIES = {
    "layer1": b"first layer" * 1000,
    "layer2": b"second layer" * 5000,
    "config": json.dumps({"os": "linux", "architecture": "arm64"}).encode(),
}


def name_of(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def manifest_of(config: bytes) -> bytes:
    def entry(body: bytes) -> dict:
        return {"digest": f"sha256:{name_of(body)}", "size": len(body)}

    layers = [entry(BODIES[name]) for name in ("layer1", "layer2", "layer1")]
    manifest = {"mediaType": registry_client.MANIFESTS[0], "config": entry(config)}
    return json.dumps({**manifest, "layers": layers}).encode()


MANIFEST = manifest_of(BODIES["config"])
DIGEST = f"sha256:{name_of(MANIFEST)}"
MANIFEST_PATH = f"/v2/org/engine/manifests/{DIGEST}"
NAME = "ghcr.io/org/engine"
SHORT = f"{NAME}@{DIGEST[:19]}"
EVERYTHING = {name_of(body) for body in (*BODIES.values(), MANIFEST)}


@pytest.fixture
def reference():
    """The reference that Docker is to list: at a free port of this host."""
    return f"127.0.0.1:{free_port()}/{NAME}@{DIGEST}"


@pytest.fixture
def paths(tmp_path):
    paths = layout.Paths(tmp_path)
    paths.docker_socket.parent.mkdir(parents=True)
    return paths


@pytest.fixture
def docker(paths, reference):
    docker, names = FakeDocker(paths.docker_socket), {"RepoDigests": [reference], "Id": "sha256:1"}
    docker.pulled_image = {"Os": "linux", "Architecture": "arm64", **names}
    yield docker
    docker.close()


@pytest.fixture
def origin():
    """A registry with the image."""
    blobs = {blob_path(name): Reply(body) for name, body in BODIES.items()}
    with serving({**blobs, MANIFEST_PATH: Reply(MANIFEST)}) as server:
        yield server


def blob_path(name: str) -> str:
    return f"/v2/org/engine/blobs/sha256:{name_of(BODIES[name])}"


@pytest.fixture
def pull(paths, reference, origin):
    """Run the program; returns its exit code."""

    def run(platform="linux/arm64"):
        argv = [reference, "--platform", platform, "--from", f"{origin.url}/v2/org/engine"]
        return pull_image.main(argv, paths)

    return run


def keeping_tag(reference: str) -> str:
    """The tag that keeps an image from a plain prune."""
    return f"{reference.partition('@')[0]}:lockstep-{DIGEST[7:19]}"


def stored_digests(paths) -> set[str]:
    return {path.name for path in paths.layers.iterdir() if path.is_file()}


def fetched_paths(origin) -> set[str]:
    return {request.path for request in origin.requests if request.method == "GET"}


def assert_refused(pull, code: int, *words: str, **how: str):
    with pytest.raises(errors.Problem) as problem:
        pull(**how)
    assert problem.value.code == code
    assert all(word in str(problem.value) for word in words)


@pytest.mark.parametrize("change", [{}, {"RepoDigests": [], "Id": DIGEST}], ids=["name", "its id"])
def test_an_image_that_is_here_is_not_fetched(docker, pull, origin, reference, capsys, change):
    docker.images[reference] = {**docker.pulled_image, **change}
    assert pull() == 0
    assert (docker.pulls, origin.requests) == ([], [])
    # A host that an older Lockstep deployed to has it without.
    assert docker.tags == {keeping_tag(reference): reference}
    assert capsys.readouterr().out == f"image {SHORT}: here already\n"


def test_an_image_is_fetched_given_to_docker_and_kept(docker, pull, paths, reference, capsys):
    docker.takes = True
    assert pull() == 0
    repository, _, digest = reference.partition("@")
    query = {"fromImage": repository, "tag": digest, "platform": "linux/arm64"}
    assert docker.pulls == [query]
    # Docker was given the very bytes, with the manifest's own type.
    types = dict.fromkeys(EVERYTHING, "application/octet-stream")
    assert docker.media_types == types | {DIGEST[7:]: registry_client.MANIFESTS[0]}
    assert stored_digests(paths) == EVERYTHING
    assert docker.tags == {keeping_tag(reference): reference}
    assert f"{NAME}: 3 of 3 layers, 82.00 of 82.00 kB\n" in capsys.readouterr().out
    # What only a forgotten image needed goes with it.
    other_manifest = manifest_of(BODIES["layer1"])  # the same layers, another configuration
    (paths.layers / name_of(other_manifest)).write_bytes(other_manifest)
    image_blob_store.remove_image(paths.layers, DIGEST[7:])
    kept_digests = {name_of(BODIES["layer1"]), name_of(BODIES["layer2"]), name_of(other_manifest)}
    assert stored_digests(paths) == kept_digests


def test_a_host_whose_peer_has_the_image_asks_the_registry_for_nothing(
    docker, pull, paths, origin, tmp_path, capsys
):
    peer = Spark(tmp_path, "spark1")
    for body in (MANIFEST, *BODIES.values()):
        (peer.flat / name_of(body)).write_bytes(body)
    write_lease(paths, peer.as_peer())
    docker.takes = True
    with contextlib.closing(peer):
        assert pull() == 0
    assert (origin.requests, set(docker.media_types)) == ([], EVERYTHING)
    assert f"image {NAME}: 0.1 MB copied from spark1" in capsys.readouterr().out


def test_wrong_bytes_are_never_given_to_docker_and_what_came_before_is_not_fetched_again(
    docker, pull, paths, origin
):
    origin.answers[blob_path("layer2")] = Reply(bytes(len(BODIES["layer2"])))
    with pytest.raises(errors.Problem, match="not what its hash says, twice in a row"):
        pull()
    assert docker.pulls == []
    assert name_of(BODIES["layer2"]) not in stored_digests(paths)
    origin.answers[blob_path("layer2")] = Reply(BODIES["layer2"])
    origin.requests.clear()
    assert pull() == 0
    assert fetched_paths(origin) == {blob_path("layer2")}


@pytest.mark.parametrize(
    ("change", "refusal", "code", "words"),
    [
        ({"Architecture": "amd64"}, "", 6, "expected linux/arm64, the image is linux/amd64"),
        ({"RepoDigests": ["x@sha256:2"]}, "", 6, "Docker has it under sha256:2"),
        ({}, "write /x: no space left on device", 5, "Remedy: `lockstep gc`"),
        ({}, "dial tcp: connection refused", 1, "finished layers are kept"),
    ],
)
def test_a_wrong_image_and_a_refusal_of_docker_have_codes(
    docker, pull, change, refusal, code, words
):
    docker.pulled_image.update(change)
    if refusal:
        docker.pull_events = [{"errorDetail": {"message": refusal}, "error": refusal}]
    assert_refused(pull, code, refusal, words)


def test_an_image_for_another_platform_is_refused_before_its_layers(docker, pull, origin):
    words = "expected linux/amd64, the image is linux/arm64"
    assert_refused(pull, 6, words, platform="linux/amd64")
    assert fetched_paths(origin) == {MANIFEST_PATH, blob_path("config")}


@pytest.mark.parametrize(
    ("status", "code", "remedy"),
    [(401, 3, "docker login"), (403, 3, "docker login"), (404, 4, "pin another digest")],
)
def test_a_registrys_refusal_gives_code_and_remedy(docker, pull, origin, status, code, remedy):
    origin.answers[MANIFEST_PATH] = Reply(b"", status)
    assert_refused(pull, code, SHORT, remedy)
    docker.close()
    docker.path.unlink()
    # Docker that is down has a code of its own.
    assert_refused(pull, 7, "Remedy: sudo systemctl start docker")


def test_an_index_of_several_platforms_is_no_pin(paths, origin):
    body = json.dumps({"manifests": []}).encode()
    digest = f"sha256:{name_of(body)}"
    origin.answers[f"/v2/org/engine/manifests/{digest}"] = Reply(body)
    base = f"{origin.url}/v2/org/engine"
    pin = pull_image.Pin(f"127.0.0.1:1/{NAME}", digest, "linux/arm64", base)
    copier, claim = peer_client.Copier(None), announced_fetches.Claim(None)
    with pytest.raises(errors.Problem, match="pin the digest of a manifest for this platform"):
        pull_image.fetch_into_store(pin, paths.layers, None, copier, claim)
    hub = pull_image.Pin("x", digest, "linux/arm64", "https://registry-1.docker.io/v2/vllm/vllm")
    assert hub.login_key == "https://index.docker.io/v1/"


BASIC = "Basic " + base64.b64encode(b"anna:s3cret").decode()


def login(paths, key: str):
    config = paths.root / "root/.docker/config.json"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"auths": {key: {"auth": BASIC.removeprefix("Basic ")}}}))


def guarded_answer(body: bytes, authorization: str, scheme: str):
    """An answer of a registry that wants to know who asks."""

    def answer(request: SeenRequest) -> Reply:
        if request.headers.get("Authorization") == authorization:
            return Reply(body)
        return Reply(b"", 401, {"WWW-Authenticate": scheme})

    return answer


def test_a_registry_that_wants_a_password_gets_the_one_of_dockers_file(docker, pull, paths, origin):
    login(paths, origin.host)
    origin.answers[MANIFEST_PATH] = guarded_answer(MANIFEST, BASIC, 'Basic realm="r"')
    assert pull() == 0


@pytest.mark.parametrize("has_login", [True, False])
def test_a_token_is_asked_for_with_the_login_of_dockers_file(
    docker, pull, paths, origin, has_login, monkeypatch
):
    monkeypatch.setattr("time.sleep", lambda _: None)
    login(paths, origin.host if has_login else "other.example")
    authorizations: list[str | None] = []

    def token(request: SeenRequest) -> Reply:
        authorizations.append(request.headers.get("Authorization"))
        assert "scope=repository%3Aorg%2Fengine%3Apull" in request.path
        # A fault that passes is one of the transfer, which is tried again.
        return as_json({"token": "t0ken"}) if len(authorizations) > 1 else Reply(b"", 503)

    scheme = f'Bearer realm="{origin.url}/token",service="r"'
    for path, reply in list(origin.answers.items()):
        origin.answers[path] = guarded_answer(reply.body, "Bearer t0ken", scheme)
    origin.answers["/token"] = token
    assert pull() == 0
    assert authorizations == [BASIC if has_login else None] * 2


def test_docker_that_speaks_tls_first_is_told_in_http_that_there_is_none(tmp_path):
    """Without a status line it gives up; there need not be a line end in what it sends."""
    address = ("127.0.0.1", free_port())
    with (
        loopback_registry.serve_store(address, tmp_path),
        socket.create_connection(address, 20) as client,
    ):
        client.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"r" * 500)
        assert client.makefile("rb").readline() == b"HTTP/1.0 400 Bad Request\r\n"
