"""Model repositories to a commit and its files, by the API of the Hugging Face hub."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from requests.utils import parse_header_links

from lockstep.checkpoints import gguf, weight_files
from lockstep.checkpoints.configuration import experts
from lockstep.core.digest import is_commit
from lockstep.core.errors import ResolveError
from lockstep.inventory import secret
from lockstep.inventory.secret import SecretSource
from lockstep.inventory.settings import Proxy
from lockstep.lock.moving import CheckpointItem
from lockstep.lock.pins import CheckpointPin, FilePin, is_inside
from lockstep.lock.resolve.http import HttpAnswer, Network, ask, without_credentials

# A page holds 1000 files, the largest known repositories a few hundred.
MOST_PAGES = 100


def resolve_checkpoint(
    item: CheckpointItem,
    network: Network,
    *,
    at: str | None = None,
    token_source: SecretSource | None = None,
) -> CheckpointPin:
    """Return the commit and files of one repository.

    Args:
        item: Repository, revision and, for borrowed files, their names.
        network: Address of the hub.
        at: A commit to stay at, where the revision is pinned already and only files are missing.
        token_source: The inventory's `hub_token`.

    Raises:
        LockstepError: the token cannot be read.
        ResolveError: no such repository, revision or file, a licence that was not accepted, or the
            hub cannot be asked.
    """
    token = hub_token(token_source)
    hub, proxy = network.sources.hub.rstrip("/"), network.proxy
    public_hub = without_credentials(hub)
    revision = quote(at or item.revision, safe="")
    url = f"{hub}/api/models/{quote(item.id)}/revision/{revision}?blobs=true"
    answer = ask(url, proxy=proxy, token=token)
    if answer.status != 200:
        raise _refusal(item, answer, public_hub, token)
    content = answer.json()
    commit = str(content.get("sha", "")) if isinstance(content, dict) else ""
    if not is_commit(commit):
        raise _strange(item, answer, f"no commit ({commit[:50]!r})")
    entries = content.get("siblings") or []
    if not all(isinstance(entry, dict) and _is_whole(entry) for entry in entries):
        # Some mirrors ignore `blobs=true`; sizes and hashes then stand in the tree.
        tree = f"{hub}/api/models/{quote(item.id)}/tree/{commit}?recursive=true"
        entries = _tree(item, tree, proxy, token)
    files = tuple(_file(item, answer, entry) for entry in entries)
    if content.get("gated") and files:
        _check_access(item, hub, commit, files[0].path, proxy, token)

    def read(name: str) -> dict[str, Any]:
        url = f"{hub}/{quote(item.id)}/resolve/{commit}/{name}"
        answer = ask(url, proxy=proxy, token=token)
        if answer.status != 200:
            raise _refusal(item, answer, public_hub, token)
        content = answer.json()
        if not isinstance(content, dict):
            raise _strange(item, answer, f"{name} that is no mapping")
        return content

    pin = _model_pin(
        item, commit, files, lambda name: set((read(name).get("weight_map") or {}).values())
    )
    if not item.experts or not pin.configuration:
        return pin
    return replace(pin, experts=experts(read(pin.configuration)))


def hub_token(token_source: SecretSource | None = None) -> str | None:
    """Return the inventory's token, or the user's: HF_TOKEN, or the file of `hf auth login`.

    None without a token; its value is never shown.

    Raises:
        LockstepError: the token cannot be read, or is unusable.
    """
    if token_source:
        token = secret.read(token_source, key="hub_token", where="this machine").strip()
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


def _refusal(item: CheckpointItem, answer: HttpAnswer, hub: str, token: str | None) -> ResolveError:
    code = answer.headers.get("X-Error-Code", "")
    status_text = f"HTTP {answer.status}" + (f" ({code})" if code else "")
    if code == "RevisionNotFound":
        return ResolveError(
            f"the repository has no revision {item.revision!r}",
            where=item.id,
            found=status_text,
            remedy="Correct the recipe's revision; `main` always exists.",
        )
    if code == "GatedRepo":
        return _gate(item, hub, token, status_text)
    # The hub answers 401 for what does not exist, so that private names stay private.
    if answer.status in (401, 403, 404):
        caller = "with this token" if token else "without a token"
        return ResolveError(
            f"the hub shows no such repository {caller}",
            where=item.id,
            found=f"{status_text} from {hub}",
            remedy="Correct the name; for a private or gated one set HF_TOKEN"
            f" and accept the licence at {hub}/{item.id}",
        )
    return _strange(item, answer, status_text)


def _gate(item: CheckpointItem, hub: str, token: str | None, status_text: str) -> ResolveError:
    place = f"there, then set HF_TOKEN to a token of {hub}/settings/tokens"
    step = "with the account of this token" if token else place
    return ResolveError(
        "the licence of this model was not accepted",
        where=item.id,
        found=f"{status_text}, {'with a' if token else 'no'} token",
        remedy=f"Open {hub}/{item.id} and accept it {step}.",
    )


def _check_access(
    item: CheckpointItem, hub: str, commit: str, path: str, proxy: Proxy, token: str | None
) -> None:
    """Check that the files may be read: a gated repository lists them to everybody."""
    url = f"{hub}/{quote(item.id)}/resolve/{commit}/{quote(path)}"
    answer = ask(url, proxy=proxy, token=token, method="HEAD", follow=False)
    if answer.status in (401, 403):
        raise _gate(item, without_credentials(hub), token, f"HTTP {answer.status}")
    if answer.status >= 400:
        raise _refusal(item, answer, without_credentials(hub), token)


def _tree(item: CheckpointItem, url: str, proxy: Proxy, token: str | None) -> list[dict[str, Any]]:
    """Return the files of the tree API in the form of the other API; large trees come in pages."""
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
        url, earlier_url = urljoin(url, following[0]), urlsplit(url)
        # An absolute address has no login, and our login is for no other server.
        parts = urlsplit(url)
        if (parts.scheme, parts.netloc) == (
            earlier_url.scheme,
            earlier_url.netloc.rpartition("@")[2],
        ):
            url = parts._replace(netloc=earlier_url.netloc).geturl()
        elif parts.netloc != earlier_url.netloc:
            token = None
    raise _strange(item, answer, f"more than {MOST_PAGES} pages of files")


def _is_whole(entry: dict[str, Any]) -> bool:
    return "size" in entry and ("blobId" in entry or "lfs" in entry)


def _file(item: CheckpointItem, answer: HttpAnswer, entry: Any) -> FilePin:
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


def _model_pin(
    item: CheckpointItem, commit: str, files: tuple[FilePin, ...], index: weight_files.Index
) -> CheckpointPin:
    """Return the pin of the needed files; `index` reads an index of weights."""
    sizes = {file.path: file.size for file in sorted(files, key=lambda file: file.path)}
    chosen_files = gguf.chosen_files(list(sizes), item.files)
    absent = [
        pattern
        for pattern, paths in chosen_files.items()
        if not paths and pattern not in gguf.OPTIONAL
    ]
    if absent or not files:
        raise ResolveError(
            f"the repository lacks {', '.join(absent)}" if absent else "the repository is empty",
            where=item.id,
            found=f"{len(files)} files at {item.revision}",
            remedy="Set lockstep.vision to false, or name a repository with an mmproj file."
            if absent == [gguf.MMPROJ]
            else "Correct the file names or the revision in the recipe.",
        )
    parts = [part for paths in chosen_files.values() for part in gguf.missing_parts(paths)]
    if parts:
        raise ResolveError(
            f"a part of the model is not in the repository: {', '.join(parts)}",
            where=item.id,
            found=f"{len(files)} files at {item.revision}",
            remedy="Name another quantisation, or a revision that has all parts.",
        )
    needed_paths = {path for paths in chosen_files.values() for path in paths}
    if item.formats:
        needed_paths |= weight_files.needed_files(sizes, item.formats, index)
    partial = bool(item.files or item.formats)
    return CheckpointPin(
        item.revision,
        commit,
        tuple(
            sorted(
                (f for f in files if f.path in needed_paths or not partial), key=lambda f: f.path
            )
        ),
        partial=partial and len(needed_paths) < len(files),
        formats=(*item.formats, *(pattern for pattern in item.files if pattern in gguf.OPTIONAL)),
        left_out=_left_out(item, sizes, needed_paths),
    )


def _left_out(
    item: CheckpointItem, sizes: dict[str, int], needed_paths: set[str]
) -> dict[str, int]:
    """Return the files that no engine loads; nothing where only some files are borrowed."""
    if item.formats:
        return weight_files.sizes_left_out(sizes, needed_paths)
    return (
        gguf.sizes_left_out(sizes, needed_paths)
        if any(map(gguf.is_quantisation, item.files))
        else {}
    )


def _strange(item: CheckpointItem, answer: HttpAnswer, description: str) -> ResolveError:
    return ResolveError(
        "the hub's answer cannot be used",
        where=item.id,
        found=f"{description} from {answer.url}",
        remedy="Check sources.hub.",
    )
