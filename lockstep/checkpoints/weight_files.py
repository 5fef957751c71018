"""The files of a repository that an engine loads, where weights exist in several formats.

Both engines look only at the top folder and take the files of the first pattern that any file has.
Of these they take the ones that the index names (vLLM 0.32.0: default_loader.py, weight_utils.py;
SGLang 0.5.23: loader.py, weight_utils.py of model_loader/; read in their wheels, 2026-11-28).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from fnmatch import fnmatchcase

#: Separator of the patterns of a format, in their order of preference.
OR = " or "
# Files with weights in some format, or a copy of them for another program.
_WEIGHTS = re.compile(
    r"\.(safetensors|bin|pth?|ckpt|gguf|ggml|h5|msgpack|ot|onnx\w*|tflite|npz|nemo|mlmodelc?"
    r"|engine|plan|onnx\.data)$",
    re.IGNORECASE,
)
# Files that neither loader takes for weights (`filter_files_not_needed_for_inference`).
_OF_TRAINING = ("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt")
# Files that single models of these engines ask for by name, in the same wheels: BGE-M3's heads, a
# mask of DFlash, a head of Clef; the folders of sentence-transformers' modules, of Jina's adapters,
# of audio encoders, of Cosmos and of a DSpark draft.
_BY_NAME = ("sparse_linear.pt", "colbert_linear.pt", "mask_embedding.pt", "joint_head.safetensors")
_FOLDERS = re.compile(
    r"\d+_\w+|adapters/[^/]+|whisper-large-v3|speech_tokenizer|transformer|vision_encoder|dspark"
)
# A pattern that only tells a format → the pattern of the files that are loaded.
_WHOLE = {"model*.safetensors": "*.safetensors"}
_PART = re.compile(r"(.*-)\d{5}(-of-\d{5}\.safetensors)")
# Files in a folder of copies that are used all the same: code and templates.
_USED = (".py", ".jinja")

#: Function that names the files that an index lists; None where it cannot be read.
Index = Callable[[str], Collection[str] | None]


def needed_files(names: Collection[str], formats: Iterable[str], index: Index) -> set[str]:
    """Return the files that engines read: all but weights in formats that none loads.

    Args:
        names: All files of the repository.
        formats: For each engine the patterns that it looks for, joined by `OR`.
        index: Asked only where the names leave it open which files are one set.

    Returns:
        All files where an engine finds none that it could load; other checks judge that.
    """
    loaded_names: set[str] = set()
    for form in formats:
        weights = weights_of(names, form, index)
        if not weights:
            return set(names)
        loaded_names |= weights
    copies = {name for name in names if _WEIGHTS.search(name)} - loaded_names
    folders = {_top(name) for name in copies} - {_top(name) for name in loaded_names} - {""}
    return {
        name
        for name in names
        if name not in copies and (_top(name) not in folders or name.endswith(_USED))
    }


def weights_of(names: Collection[str], form: str, index: Index) -> set[str]:
    """Return the weight files that an engine loads by the patterns of one format.

    The arguments are those of `needed_files`.
    """
    folders: dict[str, list[str]] = {}
    for name in sorted(names):
        folder, _, file = name.rpartition("/")
        if (not folder or _FOLDERS.fullmatch(folder)) and file not in _OF_TRAINING:
            folders.setdefault(folder, []).append(name)
    weight_names: set[str] = set()
    for folder, inside in folders.items():
        for pattern in form.split(OR):
            if not _like(pattern, inside):
                continue
            of_pattern = _like(_WHOLE.get(pattern, pattern), inside)
            weight_names.update(
                of_pattern if folder else _one_set(of_pattern, pattern, names, index)
            )
            break
    return weight_names and weight_names | {name for name in names if name in _BY_NAME}


def _like(pattern: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if fnmatchcase(name.rpartition("/")[2], pattern)]


def sizes_left_out(files: Mapping[str, int], kept_names: Collection[str]) -> dict[str, int]:
    """Return the bytes of files that are not ``kept``, by top folder ("original/") or name."""
    sizes_by_place: dict[str, int] = {}
    for name, size in sorted(files.items()):
        if name not in kept_names:
            place = f"{_top(name)}/" if _top(name) else name
            sizes_by_place[place] = sizes_by_place.get(place, 0) + size
    return sizes_by_place


def as_text(left_out: Mapping[str, int]) -> str:
    """Return the left-out files in one line, the largest first; "" for nothing."""
    largest = sorted(left_out.items(), key=lambda item: -item[1])
    return ", ".join(f"{place} {size / 1e9:.1f} GB" for place, size in largest)


def _one_set(files: list[str], pattern: str, names: Collection[str], index: Index) -> list[str]:
    """Return the files of one pattern without a second copy among them."""
    parts = [_PART.fullmatch(name) for name in files]
    if len(files) == 1 or (len({part and part.group(1, 2) for part in parts}) == 1 and all(parts)):
        return files
    stem = "consolidated" if pattern.startswith("consolidated") else "model"
    list_of_them = f"{stem}.safetensors.index.json"
    listed_names = index(list_of_them) if list_of_them in names else None
    if some := [name for name in files if name in (listed_names or ())]:
        return some
    # Mistral's own file stands beside Hugging Face's, and both engines would load both.
    return [name for name in files if not name.startswith("consolidated")] or files


def _top(name: str) -> str:
    return name.partition("/")[0] if "/" in name else ""
