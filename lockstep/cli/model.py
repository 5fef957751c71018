"""`lockstep model inspect`: the content of a checkpoint, without a download of its weights."""

from __future__ import annotations

from dataclasses import asdict

import click

from lockstep.cli.shared import AS_JSON, print_json
from lockstep.lock.resolve.repository import inspect as read_checkpoint
from lockstep.models.architecture import Architecture
from lockstep.models.checkpoint import Checkpoint
from lockstep.models.known_models import GIB


@click.group()
def model() -> None:
    """Checkpoints: the content of a repository of weights."""


@model.command()
@click.argument("identifier")
@click.option("--endpoint", help="Address of the hub; HF_ENDPOINT or the public hub by default.")
@AS_JSON
def inspect(identifier: str, endpoint: str | None, as_json: bool) -> None:
    """Show the content of a checkpoint, without its weights.

    Quantisation, vision, MTP head, licence, size and shapes of ID[@REVISION] or a folder.
    """
    name, _, revision = identifier.partition("@")
    found = read_checkpoint(name, revision or None, endpoint=endpoint)
    if as_json:
        print_json({**asdict(found), "sees": found.sees})
        return
    for key, value in _lines(found):
        click.echo(f"{key:<14} {value}")


def _lines(found: Checkpoint) -> list[tuple[str, str]]:
    lines = [
        ("model", found.model),
        ("revision", found.revision or "a folder"),
        ("licence", found.licence or "no licence tag"),
        ("weights", f"{found.weight_bytes / 1e9:.1f} GB ({found.weight_bytes / GIB:.1f} GiB)"),
        ("quantisation", found.quantisation or "not stated"),
        ("dtype", found.dtype or "not stated"),
        ("vision", _vision(found)),
        ("MTP head", _count(found.mtp_tensors, found.tensors)),
        ("missing", ", ".join(found.missing) or "nothing"),
    ]
    if found.architecture is None:
        return [*lines, ("KV cache", f"unknown: {found.architecture_unknown}")]
    return [*lines, *_cache(found.architecture)]


def _vision(found: Checkpoint) -> str:
    text = _count(found.vision_tensors, found.tensors)
    if found.vision_tensors == 0 and found.vision_config:
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
    fixed = sum(group.state_page(1) * group.count for group in shapes.layers)
    if fixed:
        lines.append(("state", f"{fixed / 2**20:.0f} MiB per sequence"))
    if shapes.context:
        lines.append(("context", f"{shapes.context} tokens"))
    return lines
