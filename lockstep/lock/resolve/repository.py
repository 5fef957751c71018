"""The small files of a repository of weights, or of a local folder, and what they say."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from lockstep.core.errors import ResolveError
from lockstep.inventory.settings import Sources
from lockstep.lock.moving import ModelWanted
from lockstep.lock.resolve.http import Network, ask
from lockstep.lock.resolve.hub import hub_token, resolve_model
from lockstep.models.checkpoint import Checkpoint, describe


def inspect(model: str, revision: str | None = None, *, endpoint: str | None = None) -> Checkpoint:
    """What a repository of the hub, or a local folder, holds.

    Revision "main" and the public hub, or that of `HF_ENDPOINT`, where none is named.

    Raises:
        ResolveError: not reachable, not there, or gated.
        CheckpointError: broken files.
    """
    folder = Path(model)
    if folder.is_dir():
        return _folder(folder)
    hub = (endpoint or os.environ.get("HF_ENDPOINT") or Sources().hub).rstrip("/")
    name, network = model.split(":", 1)[0], Network(Sources(hub=hub))
    pin = resolve_model(ModelWanted(name, revision or "main"), network)
    listed = {file.path: file.size for file in pin.files}

    def read(file: str, start: int | None) -> bytes:
        part = {} if start is None else {"Range": f"bytes=0-{start - 1}"}
        url = f"{hub}/{quote(name)}/resolve/{pin.commit}/{quote(file)}"
        answer = ask(url, proxy=network.proxy, headers=part, token=hub_token())
        if answer.status != (206 if part else 200):
            raise ResolveError(
                f"{file} cannot be read", where=answer.url, found=f"HTTP {answer.status}"
            )
        return answer.body

    return describe(model, pin.commit, listed, read)


def _folder(folder: Path) -> Checkpoint:
    files = {
        str(path.relative_to(folder)): path.stat().st_size
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }

    def read(name: str, start: int | None) -> bytes:
        with (folder / name).open("rb") as file:
            return file.read(-1 if start is None else start)

    return describe(str(folder), None, files, read)
