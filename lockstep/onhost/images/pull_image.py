"""Download a container image by digest, showing bytes, and prove that it is the pinned one.

usage: pull-image NAME@sha256:DIGEST --platform linux/arm64 --from BASE

NAME is `127.0.0.1:PORT/REGISTRY/REPOSITORY`, as Docker is to list it; BASE is the source of its
bytes, `https://REGISTRY/v2/REPOSITORY`. Manifest and layers come from another Spark of this deploy
that has them, else from BASE, resumed and checked by hash; then Docker loads them from this host.
Uses no network if the image is here. Tags it, so that no plain prune removes it. A login for BASE
is read from /root/.docker/config.json if that exists.

exit codes: 0 here and equal to the pin, 1 it could not be had, 2 wrong use, 3 no access,
            4 not found, 5 disk full, 6 wrong architecture or not the pinned digest,
            7 Docker does not answer
"""

from __future__ import annotations

import base64
import errno
import json
import re
import time
import urllib.parse
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.onhost.core import (
    atomic_files,
    errors,
    event_lines,
    file_lock,
    layout,
    program_command_lines,
)
from lockstep.onhost.docker import docker_api
from lockstep.onhost.fetch import announced_fetches, growth_report, peer_client
from lockstep.onhost.images import image_blob_store, loopback_registry, registry_client

EXIT_NO_ACCESS = 3
EXIT_NOT_FOUND = 4
EXIT_DISK_FULL = 5
EXIT_WRONG_IMAGE = 6
EXIT_NO_DOCKER = 7

PROGRESS_S = 5.0
# Docker reports at least every few seconds while it works; a silent registry does not.
_SILENCE_S = 600.0

_REFERENCE = re.compile(r"127\.0\.0\.1:\d{1,5}/[a-z0-9][\w./-]*@sha256:[0-9a-f]{64}")
_ORIGIN = re.compile(r"https?://[^/\s]+/v2/\S+")
_HUB = "https://index.docker.io/v1/"

_OTHER_MANIFEST = "pin the digest of a manifest for this platform"
# Messages of daemon and registries, as in Docker 20.10-29 and the OCI distribution specification;
# first match wins.
_CAUSES: tuple[tuple[re.Pattern[str], int, str], ...] = (
    (
        re.compile(r"no space left|disk quota", re.I),
        EXIT_DISK_FULL,
        "`lockstep gc` removes what no model needs any more; `docker system df` shows what else "
        "Docker holds",
    ),
    (
        re.compile(r"does not match the specified platform", re.I),
        EXIT_WRONG_IMAGE,
        _OTHER_MANIFEST,
    ),
    (
        re.compile(r"unauthorized|denied|authentication required|no basic auth", re.I),
        EXIT_NO_ACCESS,
        "sudo docker login REGISTRY on this host, or check the image's name",
    ),
    (
        re.compile(r"manifest unknown|not found|name unknown|404", re.I),
        EXIT_NOT_FOUND,
        "tags of nightly builds are removed upstream: pin another digest (lockstep update)",
    ),
)


@dataclass(frozen=True)
class Pin:
    """An image by digest for one platform; `origin` is the URL of its bytes."""

    repository: str
    digest: str
    platform: str
    origin: str

    @property
    def reference(self) -> str:
        """Name for Docker, `repository@sha256:…`."""
        return f"{self.repository}@{self.digest}"

    @property
    def manifest_hash(self) -> str:
        """Hash of the manifest."""
        return self.digest.removeprefix("sha256:")

    @property
    def short_digest(self) -> str:
        """Start of the digest for people: `sha256:` and 12 digits."""
        return self.digest[:19]

    def __str__(self) -> str:
        return f"{self.source_name}@{self.short_digest}"

    @property
    def loopback_address(self) -> tuple[str, int]:
        """Address and port at which Docker pulls the image."""
        address, _, port = self.repository.partition("/")[0].partition(":")
        return address, int(port)

    @property
    def source_name(self) -> str:
        """Name for people, `REGISTRY/REPOSITORY`."""
        return self.repository.partition("/")[2]

    @property
    def login_key(self) -> str:
        """Key of the registry in a Docker config.json."""
        host = urllib.parse.urlsplit(self.origin).netloc
        return _HUB if host == "registry-1.docker.io" else host


def parse_pin(reference: str, platform: str, origin: str) -> Pin:
    """Parse a pin; raise Problem (wrong use) unless all three have the documented form."""
    if not _REFERENCE.fullmatch(reference):
        raise errors.Problem(
            f"image {reference!r}: expected 127.0.0.1:PORT/NAME@sha256: and 64 hex digits",
            errors.EXIT_USAGE,
        )
    if not _ORIGIN.fullmatch(origin):
        raise errors.Problem(
            f"origin {origin!r}: expected https://REGISTRY/v2/REPOSITORY", errors.EXIT_USAGE
        )
    if platform.count("/") not in (1, 2):
        raise errors.Problem(
            f"platform {platform!r}: expected OS/ARCHITECTURE, e.g. linux/arm64", errors.EXIT_USAGE
        )
    repository, _, digest = reference.partition("@")
    return Pin(repository, digest, platform, origin)


def is_image_present(docker: docker_api.Docker, pin: Pin) -> bool:
    """Tell whether the pinned image is here; raise Problem if it is for another platform."""
    image = docker.request_json("GET", f"/images/{pin.reference}/json", none=(404,))
    if image is None:
        return False
    _check_platform(pin, "/".join([image.get("Os", "?"), image.get("Architecture", "?")]))
    # With Docker's containerd store the image's own id is the manifest's digest.
    digests = [entry.partition("@")[2] for entry in image.get("RepoDigests") or []]
    if pin.digest not in [*digests, image.get("Id")]:
        raise errors.Problem(
            f"{pin}: Docker has it under {', '.join(digests) or 'no digest'}. Remedy: "
            "docker rmi it and pull again",
            EXIT_WRONG_IMAGE,
        )
    return True


def fetch_into_store(
    pin: Pin,
    store: Path,
    login: tuple[str, str] | None,
    copier: peer_client.Copier,
    claim: announced_fetches.Claim,
) -> None:
    """Download manifest, configuration and layers into the store.

    Raises:
        errors.Problem: The download failed; with cause and remedy.
    """
    origin = registry_client.Registry(pin.origin, login)
    image_store_found = image_blob_store.ImageStore(store, origin, copier, claim)
    try:
        manifest = image_store_found.fetch_manifest(pin.manifest_hash)
        _check_platform(pin, image_store_found.platform(manifest))
        label = f"image {pin.source_name}"
        with growth_report.call_periodically(
            lambda: event_lines.say(image_store_found.progress(label, manifest)), PROGRESS_S
        ):
            image_store_found.fill(manifest)
    except registry_client.RegistryRefusal as error:
        raise pull_problem(pin, str(error)) from error
    except ValueError as error:
        message = f"{pin}: no manifest of one image: {error}. Remedy: {_OTHER_MANIFEST}"
        raise errors.Problem(message, EXIT_WRONG_IMAGE) from error
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise pull_problem(pin, "no space left on device" if full else str(error)) from error
    copier.report_copies(f"image {pin.source_name}")


def _check_platform(pin: Pin, found_platform: str) -> None:
    wanted_platform = "/".join(pin.platform.split("/")[:2])
    if found_platform != wanted_platform:
        raise errors.Problem(
            f"{pin}: expected {wanted_platform}, the image is {found_platform}. Remedy: pin the "
            "digest of the "
            f"{wanted_platform} manifest",
            EXIT_WRONG_IMAGE,
        )


def load_into_docker(
    docker: docker_api.Docker, pin: Pin, paths: layout.Paths, claim: announced_fetches.Claim
) -> None:
    """Let Docker load the image from the store; raise Problem with cause and remedy."""
    query = {"fromImage": pin.repository, "tag": pin.digest, "platform": pin.platform}
    # All images share one port, so a second deploy waits for its turn.
    turn = file_lock.hold_lock(paths.run / "image-face.lock")
    with turn, loopback_registry.serve_store(pin.loopback_address, paths.layers):
        event_lines.say(
            f"image {pin.source_name}: given to Docker; it has failed where Docker says nothing "
            f"for {event_lines.duration(_SILENCE_S)}"
        )
        try:
            _follow_pull(docker.stream("POST", "/images/create", query), pin, claim)
        except docker_api.DockerError as error:
            raise pull_problem(pin, str(error)) from error


def _follow_pull(
    events: Iterable[dict[str, Any]], pin: Pin, claim: announced_fetches.Claim
) -> None:
    every: set[str] = set()
    finished_layers: set[str] = set()
    report_time = time.monotonic()
    for event in events:
        # Peers may wait for the image after this one.
        claim.show_sign_of_life()
        if "error" in event:
            detail = event.get("errorDetail") or {}
            raise pull_problem(pin, str(detail.get("message") or event["error"]))
        layer, status = str(event.get("id", "")), str(event.get("status", ""))
        if layer and not status.startswith("Pulling from"):
            every.add(layer)
        if status in ("Pull complete", "Already exists"):
            finished_layers.add(layer)
        if time.monotonic() - report_time >= PROGRESS_S:
            report_time = time.monotonic()
            event_lines.say(
                f"image {pin.source_name}: {len(finished_layers)} of {len(every)} layers unpacked"
            )


def pull_problem(pin: Pin, message: str) -> errors.Problem:
    """Return a pull's error as cause, exit code and remedy."""
    message = message.replace(pin.digest, pin.short_digest).strip() or "no reason given"
    for pattern, code, remedy in _CAUSES:
        if pattern.search(message):
            return errors.Problem(f"{pin}: {message}. Remedy: {remedy}", code)
    return errors.Problem(
        f"{pin}: {message}. Remedy: check the registry, DNS and Docker's proxy, then "
        "run again; finished layers are kept"
    )


def tag_as_held(docker: docker_api.Docker, pin: Pin) -> None:
    """Tag the image, so that it stays a model's while no container uses it."""
    repository, _, tag = docker_api.hold_tag(pin.reference).rpartition(":")
    docker.request_json("POST", f"/images/{pin.reference}/tag", {"repo": repository, "tag": tag})


def registry_login(path: Path, pin: Pin) -> tuple[str, str] | None:
    """Return user and password from a Docker config.json, or None without an entry."""
    try:
        auths = json.loads(path.read_text(encoding="utf-8")).get("auths") or {}
        entry = auths.get(pin.login_key) or auths.get(f"https://{pin.login_key}") or {}
        user, _, password = base64.b64decode(entry.get("auth", "")).decode().partition(":")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError) as error:
        raise errors.Problem(f"{path}: cannot be used: {error}", errors.EXIT_USAGE) from error
    return (user, password) if user else None


def record_pulled_image(paths: layout.Paths, pin: Pin) -> None:
    """Record that we pulled this image: `lockstep gc` considers no other."""
    path = paths.pulled_images / f"{pin.digest.replace(':', '-')}.json"
    atomic_files.write_json(path, {"reference": pin.reference}, mode=0o600)


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Run the command line; see the module's docstring."""
    parser = program_command_lines.parser(__doc__)
    parser.add_argument("reference")
    parser.add_argument("--platform", required=True)
    parser.add_argument("--from", required=True, dest="origin", metavar="BASE")
    options = parser.parse_args(argv)
    paths = paths or layout.Paths()
    pin = parse_pin(options.reference, options.platform, options.origin)
    docker = docker_api.Docker(paths.docker_socket)
    try:
        if is_image_present(docker, pin):
            tag_as_held(docker, pin)
            event_lines.say(f"image {pin}: here already")
            return errors.EXIT_DONE
        login = registry_login(paths.root / "root/.docker/config.json", pin)
        copier = peer_client.Copier(peer_client.newest_lease(paths))
        with announced_fetches.hold_claim(
            paths, f"image-{pin.manifest_hash[:12]}", [pin.manifest_hash]
        ) as claim:
            fetch_into_store(pin, paths.layers, login, copier, claim)
            taking = docker_api.Docker(paths.docker_socket, timeout=_SILENCE_S)
            load_into_docker(taking, pin, paths, claim)
        if not is_image_present(docker, pin):
            raise errors.Problem(f"{pin}: pulled, but Docker does not list it")
        tag_as_held(docker, pin)
        record_pulled_image(paths, pin)
    except docker_api.DockerError as error:
        raise errors.Problem(f"{pin}: {error}") from error
    except docker_api.DockerUnreachable as error:
        raise errors.Problem(str(error), EXIT_NO_DOCKER) from error
    event_lines.say(f"image {pin}: here and equal to the pin")
    return errors.EXIT_DONE
