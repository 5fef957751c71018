"""Image references: taken apart as Docker does, sent to a mirror, pinned."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.core.errors import ResolveError
from lockstep.inventory.settings import Sources
from lockstep.lock import image_reference as images
from lockstep.lock.image_reference import Reference, parse
from lockstep.lock.pins import ImagePin, Pins

DIGEST = "sha256:" + "0123456789abcdef" * 4
PIN = ImagePin(DIGEST, "aarch64", 1)
PLAIN_MIRROR = {"registries": {"ghcr.io": "10.0.0.5:5000"}, "plain_registries": ("10.0.0.5:5000",)}


@pytest.mark.parametrize(
    ("reference", "parts"),
    [
        ("debian:12", Reference("docker.io", "library/debian", "12")),
        ("lmsysorg/sglang:v1", Reference("docker.io", "lmsysorg/sglang", "v1")),
        ("docker.io/library/debian", Reference("docker.io", "library/debian")),
        ("index.docker.io/debian", Reference("docker.io", "library/debian")),
        ("ghcr.io/a/b/c:main", Reference("ghcr.io", "a/b/c", "main")),
        ("localhost/x", Reference("localhost", "x")),
        ("10.0.0.5:5000/x", Reference("10.0.0.5:5000", "x")),
        ("10.0.0.5:5000/x:t", Reference("10.0.0.5:5000", "x", "t")),
        (f"ghcr.io/a/b:t@{DIGEST}", Reference("ghcr.io", "a/b", "t", DIGEST)),
        (f"debian@{DIGEST}", Reference("docker.io", "library/debian", "", DIGEST)),
    ],
)
def test_a_reference_comes_apart_as_docker_reads_it(reference: str, parts: Reference) -> None:
    assert parse(reference) == parts


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("lmsysorg/sglang:spark", "docker.io/lmsysorg/sglang"),
        ("debian:12", "docker.io/library/debian"),
        ("10.0.0.1:5000/x:t", "10.0.0.1-5000/x"),
        (f"ghcr.io/a/b@sha256:{'f' * 64}", "ghcr.io/a/b"),
    ],
)
def test_every_image_is_named_by_the_loopback_registry_its_origin_and_the_pinned_digest(
    reference: str, name: str
) -> None:
    assert images.pull_reference(reference, PIN) == f"127.0.0.1:7078/{name}@{DIGEST}"


@pytest.mark.parametrize(
    ("reference", "sources", "address"),
    [
        ("debian:12", {}, "https://registry-1.docker.io/v2/library/debian"),
        ("ghcr.io/a/b:main", {}, "https://ghcr.io/v2/a/b"),
        ("ghcr.io/a/b:main", {"registries": {"docker.io": "m:5000"}}, "https://ghcr.io/v2/a/b"),
        ("ghcr.io/a/b:main", PLAIN_MIRROR, "http://10.0.0.5:5000/v2/a/b"),
        ("x/y", {"registries": {"docker.io": "m:5000/hub/"}}, "https://m:5000/v2/hub/x/y"),
    ],
)
def test_its_bytes_are_where_the_inventory_says(
    reference: str, sources: dict[str, Any], address: str
) -> None:
    assert images.api_address(parse(reference), Sources(**sources)) == address


def test_an_image_without_a_pin_is_refused_by_name() -> None:
    with pytest.raises(ResolveError, match=r"ghcr[.]io/a/b:main is not resolved to anything exact"):
        images.pinned_reference("ghcr.io/a/b:main", Pins())
