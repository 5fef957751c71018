"""Client of one repository of an image registry, by the OCI distribution API."""

from __future__ import annotations

import base64
import json
import re
import time
import urllib.error
import urllib.parse

from lockstep.onhost.core import http_client
from lockstep.onhost.fetch import resumable_download

MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
#: Tokens of public registries live for five minutes.
_TOKEN_S = 200.0
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')


class RegistryRefusal(Exception):
    """A refusal by the registry, in words that `pull_image.pull_problem` recognises."""


class Registry:
    """A repository at `https://HOST/v2/REPOSITORY`; `login` is a user and a password."""

    def __init__(self, base: str, login: tuple[str, str] | None = None) -> None:
        self._base = base
        self._login = login
        self._authorization: str | None = None
        self._since = 0.0

    def download_source(
        self, kind: str, digest: str, size: int | None = None
    ) -> resumable_download.DownloadSource:
        """Return the source of a manifest or a blob ("manifests", "blobs"), with a valid login.

        Raises:
            RegistryRefused: The registry refuses access.
            OSError: From the network.
        """
        url = f"{self._base}/{kind}/{digest}"
        headers = {"Accept": ", ".join(MANIFESTS)} if kind == "manifests" else {}
        if self._authorization is None or time.monotonic() - self._since > _TOKEN_S:
            self._authorization = self._authorize(url, headers)
            self._since = time.monotonic()
        if self._authorization:
            headers["Authorization"] = self._authorization
        return resumable_download.DownloadSource(url, size, headers)

    def _authorize(self, url: str, headers: dict[str, str]) -> str:
        """Return the value of the Authorization header, or "" if none is required."""
        try:
            http_client.open_answer_through_proxy(url, headers, "HEAD").close()
        except urllib.error.HTTPError as error:
            if error.code != 401:
                raise
            scheme, _, parameters = error.headers.get("WWW-Authenticate", "").partition(" ")
            return self._header_for_challenge(scheme.lower(), dict(_PARAMETER.findall(parameters)))
        return ""

    def _header_for_challenge(self, scheme: str, credentials: dict[str, str]) -> str:
        basic = ""
        if self._login:
            basic = "Basic " + base64.b64encode(":".join(self._login).encode()).decode()
        if scheme == "basic" and basic:
            return basic
        realm = credentials.get("realm", "")
        if scheme != "bearer" or not realm.startswith(("https://", "http://")):
            raise RegistryRefusal("unauthorized: authentication required")
        path = urllib.parse.urlsplit(self._base).path.removeprefix("/v2/")
        query = {"scope": credentials.get("scope", f"repository:{path}:pull")}
        query |= {"service": credentials["service"]} if "service" in credentials else {}
        joint = "&" if "?" in realm else "?"
        url = f"{realm}{joint}{urllib.parse.urlencode(query)}"
        headers = {"Authorization": basic} if basic else {}
        try:
            with http_client.open_answer_through_proxy(url, headers) as response:
                content = json.loads(http_client.call_with_network_errors(response.read))
            token: str = content.get("token") or content["access_token"]
            return "Bearer " + token
        except urllib.error.HTTPError as error:
            if not resumable_download.is_final(error):
                raise
            raise RegistryRefusal(f"unauthorized: {error.code} from {realm}") from error
        except (ValueError, LookupError, TypeError) as error:
            raise RegistryRefusal(f"unauthorized: no token from {realm}") from error


def status_text(error: urllib.error.HTTPError) -> str:
    """Return an HTTP status in the words of registries."""
    words = {401: "unauthorized", 403: "denied", 404: "manifest unknown or blob not found"}
    return f"{words.get(error.code, 'the registry does not give it')} (HTTP {error.code})"
