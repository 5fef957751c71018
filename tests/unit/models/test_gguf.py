"""Which files of a repository are one GGUF model."""

from __future__ import annotations

import pytest

from lockstep.models.gguf import chosen, files_of

PARTS = [f"UD-IQ2_M/big-UD-IQ2_M-0000{number}-of-00002.gguf" for number in (1, 2)]
NAMES = [
    *("README.md", "big-BF16.gguf", "mmproj-BF16.gguf", "big-UD-Q4_K_M.gguf", "big-Q4_K_M.gguf"),
    *reversed(PARTS),
]


@pytest.mark.parametrize(
    ("quant", "files"),
    [
        ("UD-IQ2_M", PARTS),
        ("ud-iq2_m", PARTS),
        ("BF16", ["big-BF16.gguf"]),
        ("Q4_K_M", ["big-Q4_K_M.gguf"]),
        ("UD-Q4_K_M", ["big-UD-Q4_K_M.gguf"]),
        ("K_M", []),
        ("Q8_0", []),
    ],
)
def test_a_quantisation_is_its_own_files_first_part_first(quant: str, files: list[str]) -> None:
    assert list(files_of(NAMES, quant)) == files


def test_files_are_named_as_they_are_and_a_quantisation_with_its_mark() -> None:
    assert chosen(NAMES, ["README.md", ":UD-IQ2_M", "gone.json"]) == {
        "README.md": ("README.md",),
        ":UD-IQ2_M": tuple(PARTS),
        "gone.json": (),
    }
