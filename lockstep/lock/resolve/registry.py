"""Image references to the manifest of one architecture, by the OCI distribution API."""

from __future__ import annotations

import hashlib
import re
from typing import Any
from urllib.parse import urlencode

from lockstep.core.errors import ResolveError
from lockstep.lock.image_reference import PLATFORMS, Reference, api_address, parse
from lockstep.lock.moving import ImageItem
from lockstep.lock.pins import ImagePin
from lockstep.lock.resolve.http import HttpAnswer, Network, ask

_INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_ACCEPT = {"Accept": ", ".join((*_INDEXES, *_MANIFESTS))}
_CUDA = (
    re.compile(r"^CUDA_VERSION=(\d+\.\d+(?:\.\d+)?)", re.MULTILINE),
    re.compile(r"^NVIDIA_REQUIRE_CUDA=.*?cuda>=(\d+\.\d+)", re.MULTILINE),
)
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')


def resolve_image(item: ImageItem, network: Network) -> ImagePin:
    """Return the digest, recomputed here, and size of the image for the wanted architecture.

    ResolveError for no such image, none for this architecture, or a registry that does not answer.
    """
    reference = parse(item.reference)
    repository = _Repository(item.reference, reference, network)
    wanted_platform = PLATFORMS.get(item.architecture, f"linux/{item.architecture}")
    digest, manifest = repository.manifest(reference.digest or reference.tag or "latest")
    is_index = "manifests" in manifest
    if is_index:
        digest, manifest = repository.manifest(_choose(manifest, wanted_platform, item.reference))
    config_entry = manifest.get("config")
    blob = str(config_entry.get("digest", "")) if isinstance(config_entry, dict) else ""
    if not blob.startswith("sha256:") or not isinstance(manifest.get("layers"), list):
        raise _unknown(manifest, item.reference)
    config = repository.blob(blob)
    found_platform = _platform(config)
    # The index of several manifests says which is for which platform.
    if not is_index and found_platform != wanted_platform:
        raise _no_build(item.reference, wanted_platform, found_platform)
    size = sum(int(layer.get("size", 0)) for layer in manifest["layers"])
    entrypoint, variables = _words(config, "Entrypoint"), _words(config, "Env")
    return ImagePin(digest, item.architecture, size, cuda=_cuda(variables), entrypoint=entrypoint)


def _words(config: dict[str, Any], key: str) -> tuple[str, ...]:
    """Return a list of the image's configuration; () where it has none."""
    inner = config.get("config")
    values = inner.get(key) if isinstance(inner, dict) else None
    return tuple(map(str, values)) if isinstance(values, list) else ()


def _cuda(variables: tuple[str, ...]) -> str:
    """Return the CUDA of an image, by the variables that NVIDIA's base images set."""
    text = "\n".join(variables)
    for pattern in _CUDA:
        if match := pattern.search(text):
            return match[1]
    return ""


class _Repository:
    """A repository of a registry, with the token that the registry gives to anybody who asks."""

    def __init__(self, name: str, reference: Reference, network: Network) -> None:
        self.name = name
        self.base = api_address(reference, network.sources)
        self.proxy = network.proxy
        self.token: str | None = None

    def manifest(self, reference: str) -> tuple[str, dict[str, Any]]:
        """Return the digest and content of a manifest or an index, by tag or digest."""
        return self._content(self._get(f"{self.base}/manifests/{reference}", _ACCEPT), reference)

    def blob(self, digest: str) -> dict[str, Any]:
        """Return a small JSON blob, here the image's configuration."""
        return self._content(self._get(f"{self.base}/blobs/{digest}", {}), digest)[1]

    def _content(self, answer: HttpAnswer, reference: str) -> tuple[str, dict[str, Any]]:
        digest = f"sha256:{hashlib.sha256(answer.body).hexdigest()}"
        for claimed_digest in (reference, answer.headers.get("Docker-Content-Digest", "")):
            if claimed_digest.startswith("sha256:") and claimed_digest != digest:
                raise ResolveError(
                    "the registry's answer is not what its digest says",
                    where=answer.url,
                    found=digest,
                    allowed=claimed_digest,
                    remedy="Do not use this registry or mirror until that is explained.",
                )
        content = answer.json()
        if not isinstance(content, dict):
            raise ResolveError("the registry's answer is not a manifest", where=answer.url)
        return digest, content

    def _get(self, url: str, headers: dict[str, str]) -> HttpAnswer:
        answer = ask(url, proxy=self.proxy, headers=headers, token=self.token)
        if answer.status == 401 and self.token is None:
            self.token = self._login(answer)
            answer = ask(url, proxy=self.proxy, headers=headers, token=self.token)
        if answer.status == 404:
            raise ResolveError(
                "the registry has no such image",
                where=self.name,
                found=f"HTTP 404 from {answer.url}",
                remedy="Name a tag that exists; tags of nightly builds are removed after a while.",
            )
        if answer.status != 200:
            raise ResolveError(
                "the registry does not give this image to everybody, or has none of that name",
                where=self.name,
                found=f"HTTP {answer.status} from {answer.url}",
                remedy="Correct the name, or name a public image or a mirror.",
            )
        return answer

    def _login(self, refusal: HttpAnswer) -> str:
        """Return the anonymous token of a registry that wants one even for public images."""
        challenge = refusal.headers.get("WWW-Authenticate", "")
        scheme, _, parameters_text = challenge.partition(" ")
        parameters = dict(_PARAMETER.findall(parameters_text))
        if scheme.lower() != "bearer" or not parameters.get("realm", "").startswith("http"):
            raise ResolveError(
                "the registry demands a login",
                where=self.name,
                found=f"HTTP 401 from {refusal.url}, {scheme or 'no'} challenge",
                remedy="Name a public image, or a mirror that needs no login.",
            )
        path, realm = self.base.partition("/v2/")[2], parameters["realm"]
        query = {"scope": parameters.get("scope", f"repository:{path}:pull")}
        if "service" in parameters:
            query["service"] = parameters["service"]
        joint = "&" if "?" in realm else "?"
        answer = ask(f"{realm}{joint}{urlencode(query)}", proxy=self.proxy)
        content = answer.json() if answer.status == 200 else {}
        token = content.get("token") or content.get("access_token")
        if not isinstance(token, str):
            raise ResolveError(
                "the registry gives no token for this image",
                where=self.name,
                found=f"HTTP {answer.status} from {realm}",
                remedy="Correct the name, or name a public image or a mirror.",
            )
        return token


def _choose(index: dict[str, Any], wanted_platform: str, name: str) -> str:
    """Return the digest of this platform's manifest; a newer variant is never taken for "v8"."""
    entries = [entry for entry in index["manifests"] if isinstance(entry, dict)]
    fitting = [
        entry for entry in entries if _platform(entry.get("platform") or {}) == wanted_platform
    ]
    plain = [entry for entry in fitting if entry["platform"].get("variant", "v8") in ("", "v8")]
    for entry in plain or fitting:
        digest = str(entry.get("digest", ""))
        if digest.startswith("sha256:"):
            return digest
    platforms = [entry.get("platform") or {} for entry in entries]
    known_platforms = {
        _platform(p) for p in platforms if p.get("architecture") not in (None, "unknown")
    }
    raise _no_build(
        name, wanted_platform, ", ".join(sorted(known_platforms)) or "an index without platforms"
    )


def _platform(platform: dict[str, Any]) -> str:
    return f"{platform.get('os')}/{platform.get('architecture')}"


def _no_build(name: str, wanted_platform: str, platforms_found: str) -> ResolveError:
    return ResolveError(
        f"the image has no {wanted_platform} build",
        where=name,
        found=platforms_found,
        remedy=f"Name an image or tag that is built for {wanted_platform.partition('/')[2]}.",
    )


def _unknown(manifest: dict[str, Any], name: str) -> ResolveError:
    return ResolveError(
        "the image has a manifest of a kind that this program does not know",
        where=name,
        found=str(manifest.get("mediaType", f"schema {manifest.get('schemaVersion')}")),
        remedy="Name a newer build of the image.",
    )
