"""Reads a repository's small files: from a Hugging Face endpoint, or from a local folder."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

import requests

from lockstep.models.checkpoint import LARGEST_JSON, Checkpoint, CheckpointError, describe

DEFAULT_ENDPOINT = "https://huggingface.co"
TIMEOUT_S = 30


def inspect(
    model: str,
    revision: str | None = None,
    *,
    endpoint: str | None = None,
    token: str | None = None,
) -> Checkpoint:
    """What a repository or a local folder holds.

    Args:
        model: Hugging Face id, or a path to a folder.
        revision: Branch, tag or commit; "main" where None.
        endpoint: Hub address; `HF_ENDPOINT`, then the public hub, where None.
        token: Read token for gated repositories; `HF_TOKEN` where None. Never shown.

    Raises:
        CheckpointError: not reachable, not there, gated, or broken files.
    """
    folder = Path(model)
    if folder.is_dir():
        return _folder(folder)
    base = (endpoint or os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
    with requests.Session() as session:
        secret = token or os.environ.get("HF_TOKEN")
        if secret:
            session.headers["Authorization"] = f"Bearer {secret}"
        return _repository(session, base, model, revision or "main")


def _folder(folder: Path) -> Checkpoint:
    files = {
        str(path.relative_to(folder)): path.stat().st_size
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }

    def read(name: str, start: int | None) -> bytes | None:
        path = folder / name
        if not path.is_file() or (start is None and path.stat().st_size > LARGEST_JSON):
            return None
        with path.open("rb") as file:
            return file.read(-1 if start is None else start)

    return describe(str(folder), None, files, read, None)


def _repository(session: requests.Session, base: str, model: str, revision: str) -> Checkpoint:
    name = model.split(":", 1)[0]
    path = f"{quote(name)}/revision/{quote(revision, safe='')}"
    answer = _get(session, f"{base}/api/models/{path}?blobs=true", name)
    try:
        facts = answer.json()
        files = {item["rfilename"]: int(item.get("size") or 0) for item in facts["siblings"]}
        commit = str(facts["sha"])
    except (ValueError, KeyError, TypeError) as fault:
        raise CheckpointError(
            "the hub's answer is not what a hub answers", where=base, found=answer.text[:60]
        ) from fault
    if not any(files.values()):
        files = _sizes(session, base, name, commit) or files

    def read(file: str, start: int | None) -> bytes | None:
        if file not in files or (start is None and files[file] > LARGEST_JSON):
            return None
        url = f"{base}/{quote(name)}/resolve/{commit}/{quote(file)}"
        return _get(session, url, name, start).content

    return describe(model, commit, files, read, _licence(facts))


def _sizes(session: requests.Session, base: str, name: str, commit: str) -> dict[str, int]:
    """File sizes from the tree, for hubs that leave them out of the model's facts."""
    answer = _get(session, f"{base}/api/models/{quote(name)}/tree/{commit}?recursive=true", name)
    try:
        return {
            str(item["path"]): int(item.get("size") or 0)
            for item in answer.json()
            if item.get("type", "file") == "file"
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _licence(facts: dict[str, object]) -> str | None:
    card = facts.get("cardData")
    if isinstance(card, dict):
        licence, name = card.get("license"), card.get("license_name")
        if licence == "other" and isinstance(name, str):
            return f"LicenseRef-{name}"
        if isinstance(licence, str):
            return licence
    tags = facts.get("tags")
    if isinstance(tags, list):
        return next((str(t)[8:] for t in tags if str(t).startswith("license:")), None)
    return None


def _get(
    session: requests.Session, url: str, model: str, start: int | None = None
) -> requests.Response:
    """GET, of the first ``start`` bytes only where given."""
    wanted = {} if start is None else {"Range": f"bytes=0-{start - 1}"}
    try:
        answer = session.get(url, timeout=TIMEOUT_S, headers=wanted)
    except requests.RequestException as fault:
        raise CheckpointError(
            "the model hub does not answer",
            where=url.split("/api/")[0],
            found=type(fault).__name__,
            remedy="Check the network, or name another hub in HF_ENDPOINT.",
        ) from fault
    if answer.status_code in (401, 403):
        raise CheckpointError(
            f"{model} is gated, private or does not exist",
            where=url,
            found=f"HTTP {answer.status_code}",
            remedy="Accept its terms on the hub and give a read token in HF_TOKEN.",
        )
    if answer.status_code != (200 if start is None else 206):
        raise CheckpointError(
            f"{model} cannot be read", where=url, found=f"HTTP {answer.status_code}"
        )
    return answer
