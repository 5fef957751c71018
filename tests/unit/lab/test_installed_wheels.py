"""Wheels and an index of what is installed, on a machine that cannot download them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.packages import installed_wheels


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """The words of a call that makes wheels of one installed package in `out`."""
    info = tmp_path / "site/torch-1.dist-info"
    info.mkdir(parents=True)
    (tmp_path / "site/torch.py").write_text("")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 1\n\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nTag: py3-none-any\n")
    (info / "RECORD").write_text(
        "".join(f"torch-1.dist-info/{name},,\n" for name in ("METADATA", "WHEEL", "RECORD"))
        + "torch.py,,\n"
    )
    return [str(tmp_path / "out"), str(tmp_path / "site"), "--need", "torch"]


def test_a_second_call_makes_everything_anew(tmp_path: Path, words: list[str]) -> None:
    out = tmp_path / "out"
    for _ in range(2):
        assert installed_wheels.main(words) == 0
        wheel_names = [path.relative_to(out).as_posix() for path in out.rglob("*.whl")]
        assert sorted(wheel_names) == [
            "simple/torch/torch-1-py3-none-any.whl",
            "torch/torch/torch-1-py3-none-any.whl",
            "wheels/torch-1-py3-none-any.whl",
        ]


def test_a_package_in_a_folder_without_our_wheels_stays(tmp_path: Path, words: list[str]) -> None:
    package = tmp_path / "out/torch/__init__.py"
    package.parent.mkdir(parents=True)
    package.write_text("")
    assert installed_wheels.main(words) == 0
    assert package.exists()
