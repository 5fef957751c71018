#!/usr/bin/python3
"""Pull a container image by digest, showing bytes, and prove that it is the pinned one.

usage: pull_image.py REPOSITORY@sha256:DIGEST --platform linux/arm64 [--auth-file FILE]

Costs no network when the image is here. Tags nothing. FILE is a Docker config.json (default
/root/.docker/config.json where that exists).

exit codes: 0 here and equal to the pin, 1 the pull failed, 2 wrong use, 3 no access, 4 not found,
            5 disk full, 6 wrong architecture or not the pinned digest, 7 Docker does not answer
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstep.onhost import common, docker_api
else:
    import common
    import docker_api

EXIT_NO_ACCESS = 3
EXIT_NOT_FOUND = 4
EXIT_DISK_FULL = 5
EXIT_WRONG_IMAGE = 6
EXIT_NO_DOCKER = 7

PROGRESS_S = 5.0
# Docker reports at least every few seconds while it works; a registry that went silent does not.
_SILENCE_S = 600.0

_REFERENCE = re.compile(r"[a-z0-9][\w.:/-]*@sha256:[0-9a-f]{64}")
_HUB = "https://index.docker.io/v1/"

# What daemon and registries say, in the words of Docker 20.10-29 and of the OCI distribution
# specification; first match wins.
_CAUSES: tuple[tuple[re.Pattern[str], int, str], ...] = (
    (re.compile(r"no space left|disk quota", re.I), EXIT_DISK_FULL, "docker system df, then prune"),
    (
        re.compile(r"no matching manifest|does not match the specified platform", re.I),
        EXIT_WRONG_IMAGE,
        "pin the digest of a manifest for this platform",
    ),
    (
        re.compile(r"unauthorized|denied|authentication required|no basic auth", re.I),
        EXIT_NO_ACCESS,
        "sudo docker login REGISTRY on this host, or check the image's name",
    ),
    (
        re.compile(r"manifest unknown|not found|name unknown|404", re.I),
        EXIT_NOT_FOUND,
        "nightly tags are pruned: pin another digest (lockstep lock)",
    ),
)


@dataclass(frozen=True)
class Pin:
    """An image by digest for one platform."""

    repository: str
    digest: str
    platform: str

    @property
    def reference(self) -> str:
        """`repository@sha256:…` as Docker takes it."""
        return f"{self.repository}@{self.digest}"

    @property
    def short_digest(self) -> str:
        """`sha256:` and 12 digits, for people."""
        return self.digest[:19]

    def __str__(self) -> str:
        return f"{self.repository}@{self.short_digest}"

    @property
    def registry(self) -> str:
        """The registry's key in a Docker config.json."""
        first, slash, _ = self.repository.partition("/")
        is_host = slash and ("." in first or ":" in first or first == "localhost")
        return first if is_host else _HUB


def parse_pin(reference: str, platform: str) -> Pin:
    """Problem (wrong use) unless `reference` carries a full digest and `platform` is OS/ARCH."""
    if not _REFERENCE.fullmatch(reference):
        raise common.Problem(
            f"image {reference!r}: expected REPOSITORY@sha256: and 64 hex digits",
            common.EXIT_USAGE,
        )
    if platform.count("/") not in (1, 2):
        raise common.Problem(
            f"platform {platform!r}: expected OS/ARCHITECTURE, e.g. linux/arm64", common.EXIT_USAGE
        )
    repository, _, digest = reference.partition("@")
    return Pin(repository, digest, platform)


def check(docker: docker_api.Docker, pin: Pin) -> bool:
    """Whether the pinned image is here. Problem when what is here is for another platform."""
    try:
        image = docker.json("GET", f"/images/{pin.reference}/json")
    except docker_api.DockerError as error:
        if error.status == 404:
            return False
        raise
    found = "/".join([image.get("Os", "?"), image.get("Architecture", "?")])
    wanted = "/".join(pin.platform.split("/")[:2])
    if found != wanted:
        raise common.Problem(
            f"{pin}: expected {wanted}, the image is {found}. Remedy: pin the digest of "
            f"the {wanted} manifest",
            EXIT_WRONG_IMAGE,
        )
    # With Docker's containerd store the image's own id is the manifest's digest.
    digests = [entry.partition("@")[2] for entry in image.get("RepoDigests") or []]
    if pin.digest not in [*digests, image.get("Id")]:
        raise common.Problem(
            f"{pin}: Docker has it under {', '.join(digests) or 'no digest'}. Remedy: "
            "docker rmi it and pull again",
            EXIT_WRONG_IMAGE,
        )
    return True


def pull(
    docker: docker_api.Docker,
    pin: Pin,
    auth: str | None,
    say: Callable[[str], None] = common.say,
) -> None:
    """Pull the image and say how far it is. Problem with the cause and its remedy."""
    query = {"fromImage": pin.repository, "tag": pin.digest, "platform": pin.platform}
    headers = {"X-Registry-Auth": auth} if auth else {}
    try:
        _follow(docker.stream("POST", "/images/create", query, headers), pin, say)
    except docker_api.DockerError as error:
        raise failure(pin, str(error)) from error


def _follow(events: Iterable[dict[str, Any]], pin: Pin, say: Callable[[str], None]) -> None:
    layers = Layers()
    told = time.monotonic()
    for event in events:
        if "error" in event:
            detail = event.get("errorDetail") or {}
            raise failure(pin, str(detail.get("message") or event["error"]))
        layers.take(event)
        if time.monotonic() - told >= PROGRESS_S:
            told = time.monotonic()
            say(f"image {pin.repository}: {layers}")
    say(f"image {pin.repository}: {layers}")


class Layers:
    """Bytes and layers of a pull, from Docker's progress events."""

    def __init__(self) -> None:
        self._done: set[str] = set()
        self._bytes: dict[str, tuple[int, int]] = {}
        self._all: set[str] = set()

    def take(self, event: dict[str, Any]) -> None:
        """Count one event."""
        layer, status = str(event.get("id", "")), str(event.get("status", ""))
        if not layer or status.startswith("Pulling from"):
            return
        self._all.add(layer)
        detail = event.get("progressDetail") or {}
        # "Extracting" counts the same bytes a second time.
        if status == "Downloading" and detail.get("current"):
            self._bytes[layer] = (int(detail["current"]), int(detail.get("total") or 0))
        if status in ("Download complete", "Verifying Checksum") and layer in self._bytes:
            total = self._bytes[layer][1]
            self._bytes[layer] = (total, total)
        if status in ("Pull complete", "Already exists"):
            self._done.add(layer)

    def __str__(self) -> str:
        current = sum(now for now, _ in self._bytes.values())
        total = sum(max(now, known) for now, known in self._bytes.values())
        return (
            f"{len(self._done)} of {len(self._all)} layers, "
            f"{current / 1e6:.0f} of {total / 1e6:.0f} MB"
        )


def failure(pin: Pin, message: str) -> common.Problem:
    """A pull's error as cause, exit code and remedy."""
    message = message.replace(pin.digest, pin.short_digest)
    for pattern, code, remedy in _CAUSES:
        if pattern.search(message):
            return common.Problem(f"{pin}: {message}. Remedy: {remedy}", code)
    return common.Problem(
        f"{pin}: {message}. Remedy: check the registry, DNS and Docker's proxy, then "
        "run again; finished layers are kept"
    )


def registry_auth(path: Path, pin: Pin) -> str | None:
    """The X-Registry-Auth header from a Docker config.json, or None when it has no entry."""
    try:
        auths = json.loads(path.read_text(encoding="utf-8")).get("auths") or {}
        entry = auths.get(pin.registry) or auths.get(f"https://{pin.registry}") or {}
        user, _, password = base64.b64decode(entry.get("auth", "")).decode().partition(":")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError) as error:
        raise common.Problem(f"{path}: cannot be used: {error}", common.EXIT_USAGE) from error
    if not user:
        return None
    header = {"username": user, "password": password, "serveraddress": pin.registry}
    return base64.urlsafe_b64encode(json.dumps(header).encode()).decode()


def note(paths: common.Paths, pin: Pin) -> None:
    """Note that this image is here because of us: `lockstep gc` looks at no other."""
    path = paths.pulled / f"{pin.digest.replace(':', '-')}.json"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.write_text(json.dumps({"reference": pin.reference}), encoding="utf-8")


def main(argv: list[str], paths: common.Paths | None = None) -> int:
    """Command line; see the module's docstring."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reference")
    parser.add_argument("--platform", required=True)
    parser.add_argument("--auth-file", type=Path, default=Path("/root/.docker/config.json"))
    options = parser.parse_args(argv)
    pin = parse_pin(options.reference, options.platform)
    paths = paths or common.Paths()
    docker = docker_api.Docker(paths.docker_socket, timeout=_SILENCE_S)
    try:
        if check(docker, pin):
            common.say(f"image {pin}: here already")
            return common.EXIT_DONE
        pull(docker, pin, registry_auth(options.auth_file, pin))
        if not check(docker, pin):
            raise common.Problem(f"{pin}: pulled, but Docker does not list it")
        note(paths, pin)
    except docker_api.DockerError as error:
        raise common.Problem(f"{pin}: {error}") from error
    except docker_api.Unreachable as error:
        raise common.Problem(str(error), EXIT_NO_DOCKER) from error
    common.say(f"image {pin}: pulled and equal to the pin")
    return common.EXIT_DONE


if __name__ == "__main__":
    sys.exit(common.ended("pull_image", lambda: main(sys.argv[1:])))
