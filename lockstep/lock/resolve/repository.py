"""The small files of a repository of weights, or of a local folder, and what they say."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from lockstep.core.errors import ResolveError
from lockstep.inventory.secret import Source
from lockstep.inventory.settings import Sources
from lockstep.lock.moving import ModelWanted
from lockstep.lock.resolve.http import Network, ask
from lockstep.lock.resolve.hub import hub_token, resolve_model
from lockstep.models import gguf
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
    network = Network(Sources(hub=endpoint)) if endpoint else usual_network()
    name, _, quant = model.partition(gguf.MARK)
    return of_hub(name, revision or "main", network, quant=quant)


def usual_network() -> Network:
    """The public hub, or that of `HF_ENDPOINT`, by the proxy of this machine's environment."""
    return Network(Sources(hub=os.environ.get("HF_ENDPOINT") or Sources().hub))


def of_hub(
    name: str, revision: str, network: Network, *, quant: str = "", given: Source | None = None
) -> Checkpoint:
    """What a repository of the hub holds; `given` is the inventory's `hub_token`.

    `quant`: the quantisation that is meant, of GGUF.
    LockstepError as for `inspect`.
    """
    hub, token = network.sources.hub.rstrip("/"), hub_token(given)
    pin = resolve_model(ModelWanted(name, revision), network, given=given)
    listed = {file.path: file.size for file in pin.files}

    def read(file: str, start: int | None) -> bytes:
        part = {} if start is None else {"Range": f"bytes=0-{start - 1}"}
        url = f"{hub}/{quote(name)}/resolve/{pin.commit}/{quote(file)}"
        answer = ask(url, proxy=network.proxy, headers=part, token=token)
        if answer.status != (206 if part else 200):
            raise ResolveError(
                f"{file} cannot be read", where=answer.url, found=f"HTTP {answer.status}"
            )
        return answer.body

    return describe(name, pin.commit, listed, read, quant)


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
