"""Makes safetensors files without torch or numpy."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass

#: Bytes per element of the data types that the lab's models use.
ITEM_SIZE = {"BF16": 2, "F32": 4, "U8": 1, "F8_E4M3": 1}


@dataclass(frozen=True)
class Tensor:
    """One tensor: a data type of ``ITEM_SIZE``, a shape in elements, and its bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


def write_safetensors(tensors: Mapping[str, Tensor]) -> bytes:
    """The file that holds the tensors in the given order.

    ``ValueError`` names the tensor whose bytes and shape disagree.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, tensor in tensors.items():
        expected_size = math.prod(tensor.shape) * ITEM_SIZE[tensor.dtype]
        if len(tensor.data) != expected_size:
            raise ValueError(f"{name}: expected {expected_size} bytes, found {len(tensor.data)}")
        end = offset + len(tensor.data)
        shape = list(tensor.shape)
        header[name] = {"dtype": tensor.dtype, "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    parts = [struct.pack("<Q", len(text)), text, *(tensor.data for tensor in tensors.values())]
    return b"".join(parts)


def bfloat16(values: list[float]) -> bytes:
    """Little-endian bfloat16, rounded half up in magnitude."""
    words = struct.unpack(f"<{len(values)}I", struct.pack(f"<{len(values)}f", *values))
    return struct.pack(f"<{len(words)}H", *(min((word + 0x8000) >> 16, 0xFFFF) for word in words))
