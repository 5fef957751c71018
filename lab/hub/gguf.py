"""Makes GGUF files, the format of llama.cpp's models, in one part or several."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence

from lab.hub.safetensors import ITEM_SIZE, Tensor

#: A value of the metadata. A single number has 32 bits unsigned, numbers of a list are signed.
Value = str | int | float | bool | Sequence[str] | Sequence[int]

_MAGIC, _VERSION = b"GGUF", 3
_ALIGNMENT = 32
#: Numbers that the format gives to types of values.
_UINT16, _UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY = 2, 4, 5, 6, 7, 8, 9
#: Numbers that the format gives to types of elements.
_ELEMENTS = {"F32": 0, "BF16": 30}


def write_gguf(
    metadata: Mapping[str, Value], tensors: Mapping[str, Tensor], parts: int = 1
) -> list[bytes]:
    """The files of a model in the given number of parts, tensors in the given order.

    As in files that llama.cpp splits, the first part has all metadata, and each part says its
    number. Types of elements are F32 and BF16. ``ValueError`` names a tensor whose bytes and
    shape disagree, or the numbers when there are fewer tensors than parts.
    """
    if not 1 <= parts <= len(tensors):
        raise ValueError(f"{parts} parts of {len(tensors)} tensors")
    names, tensors_per_part = list(tensors), math.ceil(len(tensors) / parts)
    files = []
    for number in range(parts):
        pairs = [_pair(key, value) for key, value in metadata.items()] if number == 0 else []
        if parts > 1:
            pairs += [
                _key("split.no") + struct.pack("<IH", _UINT16, number),
                _key("split.count") + struct.pack("<IH", _UINT16, parts),
                _key("split.tensors.count") + struct.pack("<Ii", _INT32, len(tensors)),
            ]
        own = {
            name: tensors[name]
            for name in names[number * tensors_per_part : (number + 1) * tensors_per_part]
        }
        files.append(_file(pairs, own))
    return files


def _file(pairs: Sequence[bytes], tensors: Mapping[str, Tensor]) -> bytes:
    descriptions, data = [], b""
    for name, tensor in tensors.items():
        expected_size = math.prod(tensor.shape) * ITEM_SIZE[tensor.dtype]
        if len(tensor.data) != expected_size:
            raise ValueError(f"{name}: expected {expected_size} bytes, found {len(tensor.data)}")
        # The format counts dimensions from the innermost one.
        shape = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape[::-1])
        place = struct.pack("<IQ", _ELEMENTS[tensor.dtype], len(data))
        descriptions.append(_key(name) + shape + place)
        data += _aligned_data(tensor.data)
    head = _MAGIC + struct.pack("<IQQ", _VERSION, len(tensors), len(pairs))
    return _aligned_data(b"".join((head, *pairs, *descriptions))) + data


def _pair(key: str, value: Value) -> bytes:
    if isinstance(value, str | bool | int | float):
        kind, content = _scalar(value)
        return _key(key) + struct.pack("<I", kind) + content
    elements = [_scalar(element) for element in value]
    kind = elements[0][0]
    written_kind = _INT32 if kind == _UINT32 else kind
    head = struct.pack("<IIQ", _ARRAY, written_kind, len(elements))
    return _key(key) + head + b"".join(content for _, content in elements)


def _scalar(value: str | int | float | bool) -> tuple[int, bytes]:
    if isinstance(value, str):
        return _STRING, _key(value)
    if isinstance(value, bool):
        return _BOOL, struct.pack("<?", value)
    if isinstance(value, int):
        return _UINT32, struct.pack("<I", value)
    return _FLOAT32, struct.pack("<f", value)


def _key(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _aligned_data(data: bytes) -> bytes:
    return data + bytes(-len(data) % _ALIGNMENT)
