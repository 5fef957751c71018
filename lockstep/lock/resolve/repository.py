"""The small files of a repository of weights, or of a local folder, and their facts."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from lockstep.checkpoints import gguf
from lockstep.checkpoints.chat_template import of_repository
from lockstep.checkpoints.checkpoint import Checkpoint, Read, describe
from lockstep.core.errors import LockstepError, ResolveError
from lockstep.inventory.secret import SecretSource
from lockstep.inventory.settings import Sources
from lockstep.lock.moving import CheckpointItem
from lockstep.lock.pins import CheckpointPin
from lockstep.lock.resolve.http import Network, ask
from lockstep.lock.resolve.hub import hub_token, resolve_checkpoint


def inspect(model: str, revision: str | None = None, *, endpoint: str | None = None) -> Checkpoint:
    """Return the content of a repository of the hub, or of a local folder.

    The defaults are revision "main" and the public hub, or that of `HF_ENDPOINT`.

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
    """Return the public hub, or that of `HF_ENDPOINT`, by this machine's proxy."""
    return Network(Sources(hub=os.environ.get("HF_ENDPOINT") or Sources().hub))


def of_hub(
    name: str,
    revision: str,
    network: Network,
    *,
    quant: str = "",
    token_source: SecretSource | None = None,
) -> Checkpoint:
    """Return the content of a repository of the hub.

    `token_source` is the inventory's `hub_token`; `quant` is the quantisation that is meant, of
    GGUF. LockstepError as for `inspect`.
    """
    pin = resolve_checkpoint(CheckpointItem(name, revision), network, token_source=token_source)
    sizes = {file.path: file.size for file in pin.files}
    return describe(name, pin.commit, sizes, _reader(name, pin, network, token_source), quant)


def with_shapes(
    name: str, pin: CheckpointPin, network: Network, *, own_token: SecretSource | None = None
) -> CheckpointPin:
    """Return the pin with the shapes that its chat template refuses, if that can be read."""
    whole = _reader(name, pin, network, own_token)
    listed_paths = {file.path for file in pin.files}
    with contextlib.suppress(LockstepError):
        _, shapes = of_repository(lambda file: whole(file, None) if file in listed_paths else None)
        return replace(pin, refused_shapes=shapes)
    return pin


def _reader(
    name: str, pin: CheckpointPin, network: Network, own_token: SecretSource | None
) -> Read:
    hub, token = network.sources.hub.rstrip("/"), hub_token(own_token)

    def read(file: str, start: int | None) -> bytes:
        part = {} if start is None else {"Range": f"bytes=0-{start - 1}"}
        url = f"{hub}/{quote(name)}/resolve/{pin.commit}/{quote(file)}"
        answer = ask(url, proxy=network.proxy, headers=part, token=token)
        if answer.status != (206 if part else 200):
            raise ResolveError(
                f"{file} cannot be read", where=answer.url, found=f"HTTP {answer.status}"
            )
        return answer.body

    return read


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
