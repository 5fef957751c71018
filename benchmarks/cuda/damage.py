"""A part of vLLM's worker that damages the weights in its memory, and mends them again.

`--worker-extension-cls benchmarks.cuda.damage.Damage` adds the part. `/collective_rpc` of a server
in developer mode calls it. Only PyTorch is imported.
"""

from __future__ import annotations

from typing import Any

import torch

Weights = dict[str, torch.Tensor]


class Damage:
    """Methods of the worker."""

    def lockstep_damage(self, damage_spec: dict[str, Any]) -> dict[str, Any]:
        """Mend all weights, then damage them as `apply` does; without a kind they stay mended."""
        with torch.inference_mode():
            weights = dict(self.get_model().named_parameters())  # type: ignore[attr-defined]
            if not hasattr(self, "lockstep_sound"):
                self.lockstep_sound = {name: tensor.clone() for name, tensor in weights.items()}
            for name, tensor in weights.items():
                tensor.copy_(self.lockstep_sound[name])
            if damage_spec:
                apply({name: tensor.data for name, tensor in weights.items()}, damage_spec)
            changed_count = sum(
                int((bits(tensor) != bits(self.lockstep_sound[name])).sum())
                for name, tensor in weights.items()
            )
            return {
                "weights": sum(tensor.numel() for tensor in weights.values()),
                "changed": changed_count,
            }


def bits(weights: torch.Tensor) -> torch.Tensor:
    """The memory of a tensor as whole numbers of 16 bits."""
    return weights.view(-1).view(torch.int16)


def apply(weights: Weights, damage_spec: dict[str, Any]) -> None:
    """Damage weights of 16 bits in place.

    Args:
        weights: Name → values.
        damage_spec: "kind" and the values of that kind:
            flip: so many random weights, in each one of "bits" (15 sign, 14 to 7 exponent).
            scale: the weights of "layer" by "factor".  zero: the "part" of "layer".
            swap: all of two "layers".  round: all matrices of the layers, to "levels" bits, with
            one scale for "group" values of a row.  value: so many random weights become "value".
    """
    dice = torch.Generator().manual_seed(damage_spec.get("seed", 0))
    kind = damage_spec["kind"]
    if kind in ("flip", "value"):
        _scatter_damage(weights, damage_spec, dice)
    elif kind in ("scale", "zero"):
        part = f".layers.{damage_spec['layer']}.{damage_spec.get('part', '')}"
        for name, tensor in weights.items():
            if part in name and tensor.dim() == 2:
                tensor.mul_(damage_spec.get("factor", 0.0))
    elif kind == "swap":
        first, second = (f".layers.{number}." for number in damage_spec["layers"])
        for name, tensor in weights.items():
            if first in name:
                second_tensor = weights[name.replace(first, second)]
                original = tensor.clone()
                tensor.copy_(second_tensor)
                second_tensor.copy_(original)
    elif kind == "round":
        for name, tensor in weights.items():
            if ".layers." in name and tensor.dim() == 2:
                tensor.copy_(rounded_matrix(tensor, damage_spec["levels"], damage_spec["group"]))
    else:
        raise ValueError(f"no such damage: {kind}")


def rounded_matrix(matrix: torch.Tensor, levels: int, group: int) -> torch.Tensor:
    """Round to the nearest of 2**levels - 1 values, symmetric, one scale per group of a row."""
    most = 2 ** (levels - 1) - 1
    values = matrix.float().view(-1, min(group, matrix.shape[1]))
    scale = values.abs().amax(1, keepdim=True).clamp(min=1e-12) / most
    return ((values / scale).round().clamp(-most, most) * scale).view_as(matrix).to(matrix.dtype)


def _scatter_damage(weights: Weights, damage_spec: dict[str, Any], dice: torch.Generator) -> None:
    total = sum(value.numel() for value in weights.values())
    places = torch.randperm(total, generator=dice)[: damage_spec["count"]]
    picks = torch.randint(len(damage_spec.get("bits", [0])), (len(places),), generator=dice)
    begin = 0
    for value in weights.values():
        place_mask = (places >= begin) & (places < begin + value.numel())
        at = (places[place_mask] - begin).to(value.device)
        begin += value.numel()
        if damage_spec["kind"] == "value":
            value.view(-1)[at] = float(damage_spec["value"])
            continue
        masks = torch.tensor([1 << bit if bit < 15 else -(1 << 15) for bit in damage_spec["bits"]])
        words = bits(value)
        words[at] = words[at] ^ masks.to(torch.int16)[picks[place_mask]].to(value.device)
