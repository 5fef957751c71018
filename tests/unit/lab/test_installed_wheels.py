"""Wheels and an index of what is installed, on a machine that cannot download them."""

from __future__ import annotations

from pathlib import Path

from lab.packages import installed_wheels


def test_a_second_call_makes_everything_anew(tmp_path: Path) -> None:
    info = tmp_path / "site/torch-1.dist-info"
    info.mkdir(parents=True)
    (tmp_path / "site/torch.py").write_text("")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 1\n\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nTag: py3-none-any\n")
    (info / "RECORD").write_text(
        "".join(f"torch-1.dist-info/{name},,\n" for name in ("METADATA", "WHEEL", "RECORD"))
        + "torch.py,,\n"
    )
    out = tmp_path / "out"
    words = [str(out), str(tmp_path / "site"), "--need", "torch"]
    for _ in range(2):
        assert installed_wheels.main(words) == 0
        wheel_names = [path.relative_to(out).as_posix() for path in out.rglob("*.whl")]
        assert sorted(wheel_names) == [
            "simple/torch/torch-1-py3-none-any.whl",
            "torch/torch/torch-1-py3-none-any.whl",
            "wheels/torch-1-py3-none-any.whl",
        ]
