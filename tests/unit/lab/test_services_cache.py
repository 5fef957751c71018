"""Content of the lab: built once, whole, and named by its inputs; wheels of what is installed."""

import os
import time
from pathlib import Path

import pytest

from lab.core.cache import build_once, fingerprint, prune
from lab.packages import installed_wheels

silent = print


def test_an_interrupted_build_leaves_nothing_that_looks_finished(tmp_path: Path) -> None:
    def interrupt_build(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_once(tmp_path / "thing", interrupt_build, silent, "thing")
    assert not (tmp_path / "thing").exists()
    # Nor has the next one anything of it.
    (tmp_path / "thing.unfinished").mkdir(exist_ok=True)
    (tmp_path / "thing.unfinished" / "left over").write_text("x")
    build_once(tmp_path / "thing", lambda folder: None, silent, "thing")
    assert list((tmp_path / "thing").iterdir()) == []


def test_a_fingerprint_changes_with_the_content_of_a_file_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("one")
    earlier_fingerprint = fingerprint(["1.0", tmp_path])
    (tmp_path / "file").write_text("two")
    assert fingerprint(["1.0", tmp_path]) != earlier_fingerprint
    assert fingerprint(["ab", "c"]) != fingerprint(["a", "bc"])


def test_a_replaced_build_is_removed_only_when_nobody_has_used_it_for_long(tmp_path: Path) -> None:
    for name in ("index-current", "index-used", "index-old", "index-", "root-old"):
        (tmp_path / name).mkdir()
    month = 30 * 86400
    for name in ("index-current", "index-used", "index-old", "root-old"):
        os.utime(tmp_path / name, (time.time() - month, time.time() - month))
    build_once(tmp_path / "index-used", lambda new: None, silent, "index")
    prune(tmp_path, ["index"], [tmp_path / "index-current"], silent)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"index-current", "index-used", "index-", "root-old"}


def test_a_second_call_makes_everything_anew_and_leaves_what_is_no_wheel(tmp_path: Path) -> None:
    out, info = tmp_path / "out", tmp_path / "site/torch-1.dist-info"
    info.mkdir(parents=True)
    (tmp_path / "site/torch.py").write_text("")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 1\n\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nTag: py3-none-any\n")
    (info / "RECORD").write_text("torch-1.dist-info/METADATA,,\ntorch-1.dist-info/WHEEL,,\n")
    words = [str(out), str(tmp_path / "site"), "--need", "torch"]
    package = out / "torch/__init__.py"
    package.parent.mkdir(parents=True)
    package.write_text("")
    assert installed_wheels.main(words) == 0
    assert package.exists(), "its folder had no wheel of ours"
    assert installed_wheels.main(words) == 0
    assert sorted(path.relative_to(out).as_posix() for path in out.rglob("*.whl")) == [
        "simple/torch/torch-1-py3-none-any.whl",
        "torch/torch/torch-1-py3-none-any.whl",
        "wheels/torch-1-py3-none-any.whl",
    ]
