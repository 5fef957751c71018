"""Model repositories to a commit and the list of its files, by the Hugging Face hub's API."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from requests.utils import parse_header_links

from lockstep.core.digest import is_commit
from lockstep.core.errors import ResolveError
from lockstep.inventory import secret
from lockstep.inventory.secret import Source
from lockstep.inventory.settings import Proxy
from lockstep.lock.moving import ModelWanted
from lockstep.lock.pins import FilePin, ModelPin, is_inside
from lockstep.lock.resolve.http import Answer, Network, ask, without_credentials
from lockstep.models import gguf
from lockstep.models.configuration import experts

# A page holds 1000 files, the largest known repositories a few hundred.
MOST_PAGES = 100


def resolve_model(
    item: ModelWanted, network: Network, *, at: str | None = None, given: Source | None = None
) -> ModelPin:
    """Commit and files of one repository.

    Args:
        item: Repository, revision and, for borrowed files, their names.
        network: Names the hub.
        at: A commit to stay at, where the revision is pinned already and only files are missing.
        given: The inventory's `hub_token`.

    Raises:
        LockstepError: the token cannot be had.
        ResolveError: no such repository, revision or file, a licence that was not accepted, or the
            hub cannot be asked.
    """
    token = hub_token(given)
    hub, proxy = network.sources.hub.rstrip("/"), network.proxy
    shown = without_credentials(hub)
    revision = quote(at or item.revision, safe="")
    url = f"{hub}/api/models/{quote(item.id)}/revision/{revision}?blobs=true"
    answer = ask(url, proxy=proxy, token=token)
    if answer.status != 200:
        raise _refusal(item, answer, shown, token)
    content = answer.json()
    commit = str(content.get("sha", "")) if isinstance(content, dict) else ""
    if not is_commit(commit):
        raise _strange(item, answer, f"no commit ({commit[:50]!r})")
    entries = content.get("siblings") or []
    if not all(isinstance(entry, dict) and _is_whole(entry) for entry in entries):
        # Some mirrors leave `blobs=true` aside; sizes and hashes then stand in the tree.
        tree = f"{hub}/api/models/{quote(item.id)}/tree/{commit}?recursive=true"
        entries = _tree(item, tree, proxy, token)
    files = _needed(item, tuple(_file(item, answer, entry) for entry in entries))
    if content.get("gated"):
        _check_access(item, hub, commit, files[0].path, proxy, token)
    files = tuple(sorted(files, key=lambda file: file.path))
    pin = ModelPin(item.revision, commit, files, partial=bool(item.files))
    if not item.experts or not pin.configuration:
        return pin
    url = f"{hub}/{quote(item.id)}/resolve/{commit}/{pin.configuration}"
    answer = ask(url, proxy=proxy, token=token)
    if answer.status != 200:
        raise _refusal(item, answer, shown, token)
    content = answer.json()
    if not isinstance(content, dict):
        raise _strange(item, answer, f"{pin.configuration} that is no mapping")
    return replace(pin, experts=experts(content))


def hub_token(given: Source | None = None) -> str | None:
    """The inventory's token, or the user's: from HF_TOKEN or the file that `hf auth login` writes.

    None without one; its value is never shown.

    Raises:
        LockstepError: it cannot be had, or is unusable.
    """
    if given:
        token = secret.read(given, key="hub_token", where="this machine").strip()
    else:
        token = os.environ.get("HF_TOKEN", "").strip()
    if not token:
        home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
        path = Path(os.environ.get("HF_TOKEN_PATH", home / "token")).expanduser()
        try:
            token = path.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as fault:
            raise ResolveError(
                "the hub token cannot be read", where=str(path), remedy="Run `hf auth login`."
            ) from fault
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ResolveError(
            "the hub token is not a token",
            found=f"{len(token)} characters, some of them blank or not ASCII",
            remedy="Correct hub_token of the inventory, or set HF_TOKEN, or run `hf auth login`.",
        )
    return token or None


def _refusal(item: ModelWanted, answer: Answer, hub: str, token: str | None) -> ResolveError:
    code = answer.headers.get("X-Error-Code", "")
    found = f"HTTP {answer.status}" + (f" ({code})" if code else "")
    if code == "RevisionNotFound":
        return ResolveError(
            f"the repository has no revision {item.revision!r}",
            where=item.id,
            found=found,
            remedy="Correct the recipe's revision; `main` always exists.",
        )
    if code == "GatedRepo":
        return _gate(item, hub, token, found)
    # The hub answers 401 for what does not exist, so that private names stay private.
    if answer.status in (401, 403, 404):
        who = "with this token" if token else "without a token"
        return ResolveError(
            f"the hub shows no such repository {who}",
            where=item.id,
            found=f"{found} from {hub}",
            remedy="Correct the name; for a private or gated one set HF_TOKEN"
            f" and accept the licence at {hub}/{item.id}",
        )
    return _strange(item, answer, found)


def _gate(item: ModelWanted, hub: str, token: str | None, found: str) -> ResolveError:
    here = f"there, then set HF_TOKEN to a token of {hub}/settings/tokens"
    step = "with the account of this token" if token else here
    return ResolveError(
        "the licence of this model was not accepted",
        where=item.id,
        found=f"{found}, {'with a' if token else 'no'} token",
        remedy=f"Open {hub}/{item.id} and accept it {step}.",
    )


def _check_access(
    item: ModelWanted, hub: str, commit: str, path: str, proxy: Proxy, token: str | None
) -> None:
    """A gated repository lists its files to everybody; only asking for one tells who may read."""
    url = f"{hub}/{quote(item.id)}/resolve/{commit}/{quote(path)}"
    answer = ask(url, proxy=proxy, token=token, method="HEAD", follow=False)
    if answer.status in (401, 403):
        raise _gate(item, without_credentials(hub), token, f"HTTP {answer.status}")
    if answer.status >= 400:
        raise _refusal(item, answer, without_credentials(hub), token)


def _tree(item: ModelWanted, url: str, proxy: Proxy, token: str | None) -> list[dict[str, Any]]:
    """The files of the tree API in the words of the other one; large trees come in pages."""
    entries: list[dict[str, Any]] = []
    for _ in range(MOST_PAGES):
        answer = ask(url, proxy=proxy, token=token)
        content = answer.json() if answer.status == 200 else None
        if not isinstance(content, list):
            raise _strange(item, answer, f"HTTP {answer.status} and no list of files")
        entries += [
            {"rfilename": entry.get("path"), "blobId": entry.get("oid"), **entry}
            for entry in content
            if isinstance(entry, dict) and entry.get("type") == "file"
        ]
        links = parse_header_links(answer.headers.get("Link", ""))
        following = [link["url"] for link in links if link.get("rel") == "next"]
        if not following:
            return entries
        url, before = urljoin(url, following[0]), urlsplit(url)
        # A whole address has no login in it, and none of ours is for another server.
        parts = urlsplit(url)
        if (parts.scheme, parts.netloc) == (before.scheme, before.netloc.rpartition("@")[2]):
            url = parts._replace(netloc=before.netloc).geturl()
        elif parts.netloc != before.netloc:
            token = None
    raise _strange(item, answer, f"more than {MOST_PAGES} pages of files")


def _is_whole(entry: dict[str, Any]) -> bool:
    return "size" in entry and ("blobId" in entry or "lfs" in entry)


def _file(item: ModelWanted, answer: Answer, entry: Any) -> FilePin:
    path, size = (entry.get("rfilename"), entry.get("size")) if isinstance(entry, dict) else (0, 0)
    if not isinstance(path, str) or not is_inside(path):
        raise _strange(item, answer, f"a file named {path!r}")
    large = entry.get("lfs")
    large = large if isinstance(large, dict) else {}
    size = large.get("size", size)
    if not isinstance(size, int) or size < 0:
        raise _strange(item, answer, f"no size of {path}")
    sha256 = large.get("sha256") or large.get("oid")
    if not sha256 and not entry.get("blobId"):
        raise _strange(item, answer, f"no hash of {path}")
    return FilePin(path, size, sha256, None if sha256 else entry.get("blobId"))


def _needed(item: ModelWanted, files: tuple[FilePin, ...]) -> tuple[FilePin, ...]:
    chosen = gguf.chosen([file.path for file in files], item.files)
    absent = [asked for asked, found in chosen.items() if not found]
    if absent or not files:
        raise ResolveError(
            f"the repository lacks {', '.join(absent)}" if absent else "the repository is empty",
            where=item.id,
            found=f"{len(files)} files at {item.revision}",
            remedy="Correct the file names or the revision in the recipe.",
        )
    needed = {path for found in chosen.values() for path in found}
    return tuple(file for file in files if not item.files or file.path in needed)


def _strange(item: ModelWanted, answer: Answer, found: str) -> ResolveError:
    return ResolveError(
        "the hub's answer cannot be used",
        where=item.id,
        found=f"{found} from {answer.url}",
        remedy="Check sources.hub.",
    )
