"""Image references become the digest for one architecture, by a registry's own protocol."""

import hashlib
import json
from typing import Any

import pytest
from local_server import LocalServer, Reply, SeenRequest, serving

from lockstep.core.errors import ResolveError
from lockstep.inventory.settings import Sources
from lockstep.lock.moving import ImageItem
from lockstep.lock.pins import ImagePin
from lockstep.lock.resolve.http import Network
from lockstep.lock.resolve.registry import resolve_image

NIGHTLY = "registry.example/org/engine:nightly"
INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def content(value: Any, kind: str = MANIFEST) -> tuple[str, Reply]:
    """Digest and answer of some JSON, as a registry stores it."""
    body = json.dumps(value).encode()
    digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    return digest, Reply(body, 200, {"Content-Type": kind, "Docker-Content-Digest": digest})


ENTRY = ("/opt/nvidia/nvidia_entrypoint.sh",)
VARIABLES = {
    "Entrypoint": [*ENTRY],
    "Env": ["PATH=/bin", "CUDA_VERSION=13.4.1", "NVIDIA_REQUIRE_CUDA=cuda>=13.4"],
}
CONFIG_DIGEST, CONFIG = content({"architecture": "arm64", "os": "linux", "config": VARIABLES})
MANIFEST_VALUE = {
    "schemaVersion": 2,
    "mediaType": MANIFEST,
    "config": {"digest": CONFIG_DIGEST, "size": 99},
    "layers": [{"digest": "sha256:1", "size": 1000}, {"digest": "sha256:2", "size": 234}],
}
DIGEST, ARM64 = content(MANIFEST_VALUE)
OTHER_DIGEST, AMD64 = content({**MANIFEST_VALUE, "layers": [{"size": 7}]})


def entry(digest: str, architecture: str, **more: str) -> dict[str, Any]:
    return {"digest": digest, "platform": {"os": "linux", "architecture": architecture, **more}}


INDEX_VALUE = {
    "schemaVersion": 2,
    "manifests": [
        entry("sha256:" + "0" * 64, "unknown") | {"annotations": {"x": "attestation"}},
        entry(OTHER_DIGEST, "amd64"),
        # A newer variant is not taken for the common one.
        entry("sha256:" + "9" * 64, "arm64", variant="v9"),
        entry(DIGEST, "arm64", variant="v8"),
    ],
}
_, BOTH = content(INDEX_VALUE, INDEX)

ANSWERS = {
    "/v2/org/engine/manifests/nightly": BOTH,
    f"/v2/org/engine/manifests/{DIGEST}": ARM64,
    f"/v2/org/engine/manifests/{OTHER_DIGEST}": AMD64,
    "/v2/org/engine/manifests/latest": ARM64,
    f"/v2/org/engine/blobs/{CONFIG_DIGEST}": CONFIG,
}


def resolve(server: LocalServer, reference: str, architecture: str = "aarch64") -> ImagePin:
    mirrors = dict.fromkeys(("registry.example", "docker.io"), server.host)
    sources = Sources(registries=mirrors, plain_registries=(server.host,))
    return resolve_image(ImageItem(reference, architecture), Network(sources))


def failure(server: LocalServer) -> str:
    with pytest.raises(ResolveError) as error:
        resolve(server, NIGHTLY)
    return str(error.value)


@pytest.mark.parametrize(
    ("reference", "architecture", "pin"),
    [
        (NIGHTLY, "aarch64", (DIGEST, 1234)),
        (NIGHTLY, "x86_64", (OTHER_DIGEST, 7)),
        (f"registry.example/org/engine:gone@{DIGEST}", "aarch64", (DIGEST, 1234)),
        ("registry.example/org/engine", "aarch64", (DIGEST, 1234)),
    ],
)
def test_a_reference_becomes_the_manifest_of_the_architecture(reference: str, architecture, pin):
    with serving(ANSWERS) as server:
        expected_pin = ImagePin(pin[0], architecture, pin[1], cuda="13.4.1", entrypoint=ENTRY)
        assert resolve(server, reference, architecture) == expected_pin


@pytest.mark.parametrize(
    ("inner", "cuda"),
    [
        ({"Env": ["NVIDIA_REQUIRE_CUDA=cuda>=13.2 brand=grid,driver>=580"]}, "13.2"),
        ({"Env": ["CUDA_VERSION=of today"]}, ""),
        (None, ""),
    ],
)
def test_an_images_cuda_is_what_its_variables_say(inner: Any, cuda: str) -> None:
    digest, config = content({"architecture": "arm64", "os": "linux", "config": inner})
    _, single = content({**MANIFEST_VALUE, "config": {"digest": digest}})
    answers = {"/v2/org/engine/manifests/latest": single, f"/v2/org/engine/blobs/{digest}": config}
    with serving(ANSWERS | answers) as server:
        pin = resolve(server, "registry.example/org/engine")
        assert (pin.cuda, pin.entrypoint) == (cuda, ())


def test_a_registry_that_wants_a_token_gives_one_to_anybody() -> None:
    def guarded_reply(request: SeenRequest) -> Reply:
        if request.headers.get("Authorization") == "Bearer for-everybody":
            return ANSWERS[request.path]
        challenge = f'Bearer realm="{server.url}/token",service="registry.example"'
        return Reply(status=401, headers={"WWW-Authenticate": challenge})

    answers: dict[str, Any] = {path: guarded_reply for path in ANSWERS}
    answers["/token"] = Reply(b'{"token": "for-everybody"}')
    with serving(answers) as server:
        assert resolve(server, NIGHTLY).digest == DIGEST
    query = "scope=repository%3Aorg%2Fengine%3Apull&service=registry.example"
    assert server.paths[1] == f"/token?{query}"
    # One refusal, one token, index, manifest, configuration.
    assert len(server.paths) == 5


def test_an_image_without_a_build_for_the_spark_is_refused() -> None:
    _, index = content({"manifests": [entry(OTHER_DIGEST, "amd64")]}, INDEX)
    with serving(ANSWERS | {"/v2/org/engine/manifests/nightly": index}) as server:
        assert f"{NIGHTLY}: the image has no linux/arm64 build; found linux/am" in failure(server)


def test_content_that_is_not_what_its_digest_says_is_refused() -> None:
    with serving(ANSWERS | {f"/v2/org/engine/manifests/{DIGEST}": AMD64}) as server:
        message = failure(server)
    assert f"is not what its digest says; found {OTHER_DIGEST}; allowed: {DIGEST}" in message
    lying = Reply(BOTH.body, 200, {"Docker-Content-Digest": DIGEST})
    with serving(ANSWERS | {"/v2/org/engine/manifests/nightly": lying}) as server:
        assert "is not what its digest says" in failure(server)


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (Reply(b"{}", 404), "the registry has no such image; found HTTP 404 from http://"),
        (Reply(b"{}", 403), "does not give this image to everybody, or has none of that name"),
        (Reply(b"{}", 401), "the registry demands a login; found HTTP 401 from"),
        (Reply(b"{}", 401, {"WWW-Authenticate": 'Basic realm="x"'}), ", Basic challenge. Name a "),
        (Reply(b"[]"), "the registry's answer is not a manifest"),
        (Reply(b'{"schemaVersion": 1}'), "that this program does not know; found schema 1"),
    ],
)
def test_a_registry_that_does_not_answer_as_one_is_explained(reply: Reply, message: str) -> None:
    with serving({"/v2/org/engine/manifests/nightly": reply}) as server:
        assert message in failure(server)
