"""A part of vLLM's worker that damages the weights in its memory, and mends them again.

`--worker-extension-cls benchmarks.cuda.damage.Damage` adds it, and `/collective_rpc` of a server in
developer mode calls it. Only PyTorch is imported.
"""

from __future__ import annotations

from typing import Any

import torch

Weights = dict[str, torch.Tensor]


class Damage:
    """Methods of the worker."""

    def lockstep_damage(self, what: dict[str, Any]) -> dict[str, Any]:
        """Mend all weights, then damage them as `apply` does; without a kind they stay mended."""
        with torch.inference_mode():
            weights = dict(self.get_model().named_parameters())  # type: ignore[attr-defined]
            if not hasattr(self, "lockstep_sound"):
                self.lockstep_sound = {name: each.clone() for name, each in weights.items()}
            for name, each in weights.items():
                each.copy_(self.lockstep_sound[name])
            if what:
                apply({name: each.data for name, each in weights.items()}, what)
            changed = sum(
                int((bits(each) != bits(self.lockstep_sound[name])).sum())
                for name, each in weights.items()
            )
            return {"weights": sum(each.numel() for each in weights.values()), "changed": changed}


def bits(weights: torch.Tensor) -> torch.Tensor:
    """The same memory as whole numbers of 16 bits."""
    return weights.view(-1).view(torch.int16)


def apply(weights: Weights, what: dict[str, Any]) -> None:
    """Damage weights of 16 bits where they are.

    Args:
        weights: Name → values.
        what: "kind" and what belongs to it:
            flip: so many random weights, in each one of "bits" (15 sign, 14 to 7 exponent).
            scale: those of "layer" by "factor".  zero: the "part" of "layer".
            swap: all of two "layers".  round: all matrices of the layers, to "levels" bits, with
            one scale for "group" values of a row.  value: so many random weights become "value".
    """
    dice = torch.Generator().manual_seed(what.get("seed", 0))
    kind = what["kind"]
    if kind in ("flip", "value"):
        _scattered(weights, what, dice)
    elif kind in ("scale", "zero"):
        part = f".layers.{what['layer']}.{what.get('part', '')}"
        for name, each in weights.items():
            if part in name and each.dim() == 2:
                each.mul_(what.get("factor", 0.0))
    elif kind == "swap":
        first, second = (f".layers.{number}." for number in what["layers"])
        for name, each in weights.items():
            if first in name:
                other = weights[name.replace(first, second)]
                kept = each.clone()
                each.copy_(other)
                other.copy_(kept)
    elif kind == "round":
        for name, each in weights.items():
            if ".layers." in name and each.dim() == 2:
                each.copy_(rounded(each, what["levels"], what["group"]))
    else:
        raise ValueError(f"no such damage: {kind}")


def rounded(matrix: torch.Tensor, levels: int, group: int) -> torch.Tensor:
    """To the nearest of 2**levels - 1 values, symmetric, with one scale for so many of a row."""
    most = 2 ** (levels - 1) - 1
    values = matrix.float().view(-1, min(group, matrix.shape[1]))
    scale = values.abs().amax(1, keepdim=True).clamp(min=1e-12) / most
    return ((values / scale).round().clamp(-most, most) * scale).view_as(matrix).to(matrix.dtype)


def _scattered(weights: Weights, what: dict[str, Any], dice: torch.Generator) -> None:
    total = sum(each.numel() for each in weights.values())
    places = torch.randperm(total, generator=dice)[: what["count"]]
    picks = torch.randint(len(what.get("bits", [0])), (len(places),), generator=dice)
    begin = 0
    for each in weights.values():
        here = (places >= begin) & (places < begin + each.numel())
        at = (places[here] - begin).to(each.device)
        begin += each.numel()
        if what["kind"] == "value":
            each.view(-1)[at] = float(what["value"])
            continue
        masks = torch.tensor([1 << bit if bit < 15 else -(1 << 15) for bit in what["bits"]])
        words = bits(each)
        words[at] = words[at] ^ masks.to(torch.int16)[picks[here]].to(each.device)
