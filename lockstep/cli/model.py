"""`lockstep model inspect`: the content of a checkpoint, without a download of its weights."""

from __future__ import annotations

from dataclasses import asdict

import click

from lockstep.checkpoints import weight_files
from lockstep.checkpoints.architecture import Architecture
from lockstep.checkpoints.checkpoint import Checkpoint
from lockstep.checkpoints.known_checkpoints import GIB
from lockstep.cli.common import AS_JSON, DONE, FINDINGS, print_json
from lockstep.lock.resolve.repository import inspect as read_checkpoint


@click.group()
def model() -> None:
    """Show the content of a repository of weights."""


@model.command()
@click.argument("identifier")
@click.option("--endpoint", help="Address of the hub; HF_ENDPOINT or the public hub by default.")
@AS_JSON
def inspect(identifier: str, endpoint: str | None, as_json: bool) -> int:
    """Show the content of a checkpoint, without its weights.

    Quantisation, vision, MTP head, licence, size and shapes of ID[:QUANT][@REVISION] or a folder.

    Exit codes: 0 done, 1 no weights, 2 unreadable.
    """
    name, _, revision = identifier.partition("@")
    checkpoint = read_checkpoint(name, revision or None, endpoint=endpoint)
    if as_json:
        print_json({**asdict(checkpoint), "sees": checkpoint.sees})
    else:
        for key, value in _lines(checkpoint):
            click.echo(f"{key:<14} {value}")
    return DONE if checkpoint.weight_bytes or checkpoint.quantisations else FINDINGS


def _lines(checkpoint: Checkpoint) -> list[tuple[str, str]]:
    lines = [
        ("model", checkpoint.model),
        ("revision", checkpoint.revision or "a folder"),
        ("licence", checkpoint.licence or "no licence tag"),
        ("weights", _weights(checkpoint)),
        ("left out", weight_files.as_text(checkpoint.left_out) or "nothing"),
        ("quantisation", checkpoint.quantisation or "not stated"),
        ("dtype", checkpoint.dtype or "not stated"),
        ("vision", _vision(checkpoint)),
        ("MTP head", _count(checkpoint.mtp_tensors, checkpoint.tensors)),
        ("missing", ", ".join(checkpoint.missing) or "nothing"),
    ]
    if checkpoint.architecture is None:
        return [*lines, ("KV cache", f"unknown: {checkpoint.architecture_unknown}")]
    return [*lines, *_cache(checkpoint.architecture)]


def _weights(checkpoint: Checkpoint) -> str:
    if not (checkpoint.weight_bytes or checkpoint.quantisations):
        return "none that an engine loads"
    if checkpoint.weight_bytes:
        return f"{checkpoint.weight_bytes / 1e9:.1f} GB ({checkpoint.weight_bytes / GIB:.1f} GiB)"
    sizes = (f":{name} {size / 1e9:.1f} GB" for name, size in checkpoint.quantisations.items())
    return f"of one quantisation: {', '.join(sizes)}"


def _vision(checkpoint: Checkpoint) -> str:
    if checkpoint.vision_tensors is None and checkpoint.sees is not None:
        return "by its mmproj file" if checkpoint.sees else "no: there is no mmproj file"
    text = _count(checkpoint.vision_tensors, checkpoint.tensors)
    if checkpoint.vision_tensors == 0 and checkpoint.vision_config:
        text += "; the configuration's vision part is boilerplate"
    return text


def _count(some: int | None, of: int | None) -> str:
    if some is None:
        return "unknown: the repository has no weight index"
    return f"{some} of {of} tensors" if some else f"no (0 of {of} tensors)"


def _cache(shapes: Architecture) -> list[tuple[str, str]]:
    lines = [("KV cache", f"{shapes.kv_bytes_per_token():.0f} bytes per token at 2 bytes each")]
    if not shapes.layers:
        lines = [("KV cache", "none: an encoder")]
    windows = [group for group in shapes.layers if group.kind == "sliding"]
    if windows:
        full = sum(group.bytes_for(group.window, 2) for group in windows)
        lines.append(("windows", f"{full / 2**20:.0f} MiB per sequence, all of them full"))
    fixed_bytes = sum(group.state_page(1) * group.count for group in shapes.layers)
    if fixed_bytes:
        lines.append(("state", f"{fixed_bytes / 2**20:.0f} MiB per sequence"))
    if shapes.context:
        lines.append(("context", f"{shapes.context} tokens"))
    return lines
