"""The small files of a repository of weights, or of a local folder, and what they say."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from lockstep.core.errors import LockstepError, ResolveError
from lockstep.inventory.secret import Source
from lockstep.inventory.settings import Sources
from lockstep.lock.moving import ModelWanted
from lockstep.lock.pins import ModelPin
from lockstep.lock.resolve.http import Network, ask
from lockstep.lock.resolve.hub import hub_token, resolve_model
from lockstep.models.chat_template import of_repository
from lockstep.models.checkpoint import Checkpoint, Read, describe


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
    return of_hub(model.split(":", 1)[0], revision or "main", network)


def usual_network() -> Network:
    """The public hub, or that of `HF_ENDPOINT`, by the proxy of this machine's environment."""
    return Network(Sources(hub=os.environ.get("HF_ENDPOINT") or Sources().hub))


def of_hub(
    name: str, revision: str, network: Network, *, given: Source | None = None
) -> Checkpoint:
    """What a repository of the hub holds; `given` is the inventory's `hub_token`.

    LockstepError as for `inspect`.
    """
    pin = resolve_model(ModelWanted(name, revision), network, given=given)
    listed = {file.path: file.size for file in pin.files}
    return describe(name, pin.commit, listed, _reader(name, pin, network, given))


def with_shapes(
    name: str, pin: ModelPin, network: Network, *, given: Source | None = None
) -> ModelPin:
    """The pin with the shapes that the repository's chat template refuses, where it can be read."""
    whole = _reader(name, pin, network, given)
    listed = {file.path for file in pin.files}
    with contextlib.suppress(LockstepError):
        _, shapes = of_repository(lambda file: whole(file, None) if file in listed else None)
        return replace(pin, refused_shapes=shapes)
    return pin


def _reader(name: str, pin: ModelPin, network: Network, given: Source | None) -> Read:
    hub, token = network.sources.hub.rstrip("/"), hub_token(given)

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
