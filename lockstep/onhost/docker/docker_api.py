"""A small client of the Docker Engine API over its Unix socket.

It replaces the `docker` command, because the API answers in milliseconds and gives sizes in bytes
and errors with a status. Paths without a version work with every daemon.
"""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any

from lockstep.onhost.core import errors, http_client

#: The label of each container and volume of ours.
LABEL = "lockstep.unit"


class DockerError(Exception):
    """An error status as Docker's answer; `status` is its HTTP code."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class DockerUnreachable(errors.Problem):
    """The error that the daemon does not answer at its socket."""


class Docker:
    """The daemon behind `path`; `timeout` (s) bounds each wait for data."""

    def __init__(self, path: Path, timeout: float = 60.0) -> None:
        self._path = path
        self._timeout = timeout

    @contextmanager
    def _open_answer(
        self, method: str, path: str, query: dict[str, str] | None
    ) -> Iterator[HTTPResponse]:
        target = f"{path}?{urllib.parse.urlencode(query)}" if query else path
        try:
            with http_client.open_answer(
                f"http://docker{target}", self._timeout, method, unix_socket=self._path
            ) as response:
                if response.status >= 400:
                    raise DockerError(response.status, _message(response.read()))
                yield response
        except PermissionError as error:
            raise DockerUnreachable(f"no right to ask Docker at {self._path}") from error
        except OSError as error:
            raise DockerUnreachable(
                f"Docker does not answer at {self._path}: {errors.why(error)}. {_remedy(error)}"
            ) from error
        except HTTPException as error:
            raise DockerUnreachable(
                f"Docker broke off its answer at {self._path}: {error!r}"
            ) from error

    def request_json(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        *,
        none: Sequence[int] = (),
    ) -> Any:
        """Send one request; return its JSON answer, None if empty or for a status of `none`.

        Raises DockerError or DockerUnreachable.
        """
        try:
            with self._open_answer(method, path, query) as response:
                body = response.read()
        except DockerError as error:
            if error.status not in none:
                raise
            return None
        return json.loads(body) if body.strip() else None

    def stream(self, method: str, path: str, query: dict[str, str]) -> Iterator[dict[str, Any]]:
        """Yield the answer to one request, a stream of JSON objects, one per line, as they come."""
        with self._open_answer(method, path, query) as response:
            while line := response.readline():
                if line.strip():
                    yield json.loads(line)

    def running_containers(self, names: Iterable[str] | None = None) -> dict[str, dict[str, Any]]:
        """Return running containers by name: all, or only those called one of `names`."""
        containers = {}
        for container in self.request_json("GET", "/containers/json"):
            for name in container.get("Names") or []:
                containers[name.lstrip("/")] = container
        if names is None:
            return containers
        wanted_names = set(names)
        return {name: entry for name, entry in containers.items() if name in wanted_names}

    def container(self, name: str) -> dict[str, Any] | None:
        """Return the container of that name, running or not; None if there is none."""
        path = f"/containers/{urllib.parse.quote(name, safe='')}/json"
        document: dict[str, Any] | None = self.request_json("GET", path, none=(404,))
        return document

    def check_containerd_answers(self, container: str | None = None) -> None:
        """Send a request that Docker cannot answer from memory, about the container or about none.

        For it Docker asks containerd, and containerd asks the container's shim. Raises
        DockerUnreachable.
        """
        name = urllib.parse.quote(container or "", safe="")
        try:
            self.request_json("GET", f"/containers/{name}/top" if container else "/version")
        except DockerUnreachable as error:
            subject = f"what runs in container {container}" if container else "its version"
            raise DockerUnreachable(
                f"containerd does not tell Docker {subject}. Remedy: sudo systemctl restart "
                "containerd docker, which ends what runs in containers, a hot model among them"
            ) from error
        except DockerError:
            pass  # The container has ended meanwhile: that is an answer.

    def remove(self, name: str) -> None:
        """Kill and remove a container (`docker rm -f`); no error if it is already being removed."""
        path = f"/containers/{urllib.parse.quote(name, safe='')}"
        # 409: somebody else is already removing it (`docker run --rm`).
        self.request_json("DELETE", path, {"force": "1"}, none=(404, 409))


def hold_tag(reference: str) -> str:
    """Return the tag that holds an image of ours, `REPOSITORY@sha256:…`.

    Docker of the overlay2 store calls an image without a tag dangling, and `docker image prune`
    removes it (moby daemon/images/image_prune.go, read 2026-11). The repository is at our own port
    of this host, so the tag is nobody else's.
    """
    repository, _, digest = reference.partition("@sha256:")
    return f"{repository}:lockstep-{digest[:12]}"


def is_ours(labels: Mapping[str, str] | None) -> bool:
    """Tell whether a unit of ours made a container or volume with these labels."""
    return LABEL in (labels or {})


def _remedy(error: OSError) -> str:
    """Return the remedy for a silent daemon; a start does nothing for one that hangs."""
    if isinstance(error, (ConnectionRefusedError, FileNotFoundError)):
        return "Remedy: sudo systemctl start docker"
    return (
        "Remedy: sudo systemctl restart docker, which ends what runs in containers, "
        "a hot model among them"
    )


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, LookupError, TypeError):
        return body.decode("utf-8", "replace").strip()[:300]
