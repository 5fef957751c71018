"""Images: pulled by digest through the Docker API, proven, and every failure explained."""

from __future__ import annotations

import base64
import json

import pytest
from onhost_fakes import FakeDocker, common, docker_api, pull_image, stop_container

DIGEST = "sha256:" + "c" * 64
REFERENCE = f"registry.example:5000/lmsysorg/sglang@{DIGEST}"
SHORT = "registry.example:5000/lmsysorg/sglang@sha256:cccccccccccc"
IMAGE = {"Os": "linux", "Architecture": "arm64", "RepoDigests": [REFERENCE], "Id": "sha256:1"}


@pytest.fixture
def paths(tmp_path):
    paths = common.Paths(tmp_path)
    paths.docker_socket.parent.mkdir(parents=True)
    return paths


@pytest.fixture
def docker(paths):
    docker = FakeDocker(paths.docker_socket)
    yield docker
    docker.close()


def pull(paths: common.Paths, *argv: str) -> int:
    auth = ["--auth-file", str(paths.root / "config.json")]
    return pull_image.main([REFERENCE, "--platform", "linux/arm64", *auth, *argv], paths)


def test_an_image_that_is_here_is_not_pulled(docker, paths, capsys):
    docker.images[REFERENCE] = IMAGE

    assert pull(paths) == 0
    assert docker.pulls == []
    assert capsys.readouterr().out == f"image {SHORT}: here already\n"


def test_a_pull_asks_for_digest_and_platform_and_tells_bytes(docker, paths, capsys):
    docker.pulled_image = IMAGE
    docker.pull_events = [
        {"status": "Pulling from lmsysorg/sglang", "id": DIGEST},
        {"status": "Pulling fs layer", "progressDetail": {}, "id": "l1"},
        {"status": "Already exists", "progressDetail": {}, "id": "l2"},
        {"status": "Downloading", "progressDetail": {"current": 5e6, "total": 9e6}, "id": "l1"},
        {"status": "Download complete", "progressDetail": {}, "id": "l1"},
        {"status": "Extracting", "progressDetail": {"current": 1, "total": 9e6}, "id": "l1"},
        {"status": "Pull complete", "progressDetail": {}, "id": "l1"},
        {"status": f"Digest: {DIGEST}"},
    ]

    assert pull(paths) == 0
    assert docker.pulls == [
        {
            "fromImage": "registry.example:5000/lmsysorg/sglang",
            "tag": DIGEST,
            "platform": "linux/arm64",
        }
    ]
    assert capsys.readouterr().out == (
        "image registry.example:5000/lmsysorg/sglang: 2 of 2 layers, 9 of 9 MB\n"
        f"image {SHORT}: pulled and equal to the pin\n"
    )


def test_layers_count_bytes_while_they_come():
    layers = pull_image.Layers()
    for event in (
        {"status": "Pulling fs layer", "id": "a"},
        {"status": "Downloading", "progressDetail": {"current": 3e6, "total": 10e6}, "id": "a"},
        {"status": "Downloading", "progressDetail": {"current": 20e6, "total": 30e6}, "id": "b"},
    ):
        layers.take(event)
    assert str(layers) == "0 of 2 layers, 23 of 40 MB"


def test_an_image_known_only_by_its_id_is_the_pin_too(docker, paths):
    docker.images[REFERENCE] = {**IMAGE, "RepoDigests": [], "Id": DIGEST}

    assert pull(paths) == 0


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ({**IMAGE, "Architecture": "amd64"}, "expected linux/arm64, the image is linux/amd64"),
        ({**IMAGE, "RepoDigests": ["x@sha256:2"]}, "Docker has it under sha256:2"),
    ],
)
def test_an_image_that_is_not_the_pin_is_refused(docker, paths, image, words):
    docker.pulled_image = image

    with pytest.raises(common.Problem, match=words) as problem:
        pull(paths)
    assert problem.value.code == 6


@pytest.mark.parametrize(
    ("message", "code", "remedy"),
    [
        ("unauthorized: authentication required", 3, "docker login"),
        ("pull access denied for x, repository does not exist", 3, "docker login"),
        ("manifest for x not found: manifest unknown", 4, "pin another digest"),
        ("write /var/lib/docker/tmp: no space left on device", 5, "docker system df"),
        ("no matching manifest for linux/arm64 in the manifest list", 6, "for this platform"),
        ("dial tcp: lookup registry.example: no such host", 1, "finished layers are kept"),
    ],
)
def test_a_failed_pull_gives_cause_code_and_remedy(docker, paths, message, code, remedy):
    docker.pull_events = [{"errorDetail": {"message": message}, "error": message}]

    with pytest.raises(common.Problem) as problem:
        pull(paths)
    assert problem.value.code == code
    assert message in str(problem.value)
    assert remedy in str(problem.value)


def test_credentials_come_from_dockers_own_file(docker, paths):
    entry = {"auth": base64.b64encode(b"anna:s3cret").decode()}
    config = paths.root / "config.json"
    config.write_text(json.dumps({"auths": {"registry.example:5000": entry}}))
    docker.pulled_image = IMAGE

    assert pull(paths) == 0
    assert json.loads(base64.urlsafe_b64decode(docker.auth or "")) == {
        "username": "anna",
        "password": "s3cret",
        "serveraddress": "registry.example:5000",
    }


def test_credentials_of_another_registry_are_not_sent(docker, paths):
    entry = {"auth": base64.b64encode(b"anna:s3cret").decode()}
    (paths.root / "config.json").write_text(json.dumps({"auths": {"ghcr.io": entry}}))
    docker.pulled_image = IMAGE

    pull(paths)
    assert docker.auth is None


@pytest.mark.parametrize(
    ("repository", "registry"),
    [
        ("vllm/vllm-openai", "https://index.docker.io/v1/"),
        ("ghcr.io/spark-arena/x", "ghcr.io"),
        ("localhost/x", "localhost"),
        ("10.0.0.1:5000/x", "10.0.0.1:5000"),
    ],
)
def test_the_registry_of_an_image(repository, registry):
    assert pull_image.Pin(repository, DIGEST, "linux/arm64").registry == registry


@pytest.mark.parametrize(
    ("reference", "platform", "words"),
    [
        ("vllm/vllm-openai:v0.32.0", "linux/arm64", "expected REPOSITORY@sha256: and 64 hex"),
        ("vllm/vllm-openai@sha256:abc", "linux/arm64", "expected REPOSITORY@sha256: and 64 hex"),
        (REFERENCE, "arm64", "expected OS/ARCHITECTURE"),
    ],
)
def test_wrong_use_is_explained(reference, platform, words):
    with pytest.raises(common.Problem, match=words) as problem:
        pull_image.parse_pin(reference, platform)
    assert problem.value.code == 2


def test_docker_that_is_down_has_a_code_of_its_own(paths):
    with pytest.raises(common.Problem, match="Remedy: sudo systemctl start docker") as problem:
        pull(paths)
    assert problem.value.code == 7


def test_a_container_is_stopped_until_its_name_is_free(docker, paths, capsys):
    docker.containers["vllm-qwen36"] = "x"
    docker.deaf_removals = 2  # `docker run --rm` is removing it at the same moment

    assert stop_container.main(["vllm-qwen36"], paths) == 0
    assert docker.containers == {}
    assert capsys.readouterr().out == "lockstep: container vllm-qwen36 is gone\n"


def test_no_container_to_stop_is_silent_success(docker, paths, capsys):
    assert stop_container.main(["vllm-qwen36"], paths) == 0
    assert capsys.readouterr().out == ""


def test_a_container_that_stays_is_an_error(docker, paths):
    docker.containers["vllm-qwen36"] = "x"
    docker.deaf_removals = 10_000

    with pytest.raises(common.Problem, match=r"still there .* after it was killed. Remedy"):
        stop_container.stop(docker_api.Docker(paths.docker_socket), "vllm-qwen36", 0.3)
