"""Image references: taken apart as Docker does, sent to a mirror, pinned."""

from __future__ import annotations

import pytest

from lockstep.errors import ResolveError
from lockstep.images import Reference, parse, pinned_reference, pull_reference
from lockstep.pins import ImagePin, Pins
from lockstep.settings import Sources

DIGEST = "sha256:" + "0123456789abcdef" * 4
PIN = ImagePin(DIGEST, "aarch64", 1)


@pytest.mark.parametrize(
    ("reference", "parts"),
    [
        ("debian", Reference("docker.io", "library/debian")),
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
    ("reference", "mirrors", "name"),
    [
        ("lmsysorg/sglang:spark", {}, "lmsysorg/sglang"),
        ("debian:12", {}, "debian"),
        ("ghcr.io/a/b:main", {}, "ghcr.io/a/b"),
        ("ghcr.io/a/b:main", {"docker.io": "m:5000"}, "ghcr.io/a/b"),
        ("ghcr.io/a/b:main", {"ghcr.io": "10.0.0.5:5000"}, "10.0.0.5:5000/a/b"),
        ("debian:12", {"docker.io": "m:5000"}, "m:5000/library/debian"),
        ("lmsysorg/sglang", {"docker.io": "m:5000/hub/"}, "m:5000/hub/lmsysorg/sglang"),
        ("10.0.0.1:5000/x:t", {"10.0.0.1:5000": "10.0.0.2:5000"}, "10.0.0.2:5000/x"),
        (f"ghcr.io/a/b@sha256:{'f' * 64}", {}, "ghcr.io/a/b"),
    ],
)
def test_a_pull_names_the_mirror_and_the_pinned_digest(
    reference: str, mirrors: dict[str, str], name: str
) -> None:
    assert pull_reference(reference, Sources(registries=mirrors), PIN) == f"{name}@{DIGEST}"


def test_an_image_without_a_pin_is_refused_by_name() -> None:
    with pytest.raises(ResolveError, match="is not resolved to a digest"):
        pinned_reference("ghcr.io/a/b:main", Sources(), Pins())
