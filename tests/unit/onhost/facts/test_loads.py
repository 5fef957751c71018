"""Diff's findings about loads: slower than half of the disk, with the disk's own traits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from a_model import about
from onhost_fakes import host_root

from lockstep.onhost.core import atomic_files, layout
from lockstep.onhost.facts import weights
from lockstep.onhost.records import last_weight_loads

GIB = 2**30


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> layout.Paths:
    """A host whose model's weights are one file in a folder, on a disk of 475 MB/s."""
    models = {"mistral": about(weights=["/data/models/mistral"], unit="vllm.service")}
    paths = host_root(tmp_path / "root", models, 100.0)
    folder = paths.root / "data/models/mistral"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"x")
    monkeypatch.setattr(layout, "Paths", lambda: paths)
    mount_at(paths, "ext4", "/dev/sda1", "rw")
    return paths


def mount_at(paths: layout.Paths, kind: str, source: str, options: str) -> None:
    mountinfo = paths.proc / "self/mountinfo"
    mountinfo.parent.mkdir(parents=True, exist_ok=True)
    place = paths.root.resolve()
    mountinfo.write_text(f"40 22 8:1 / {place} rw - {kind} {source} {options}\n")


def record_load(paths: layout.Paths, seconds: float, disk_mb_s: float | None = 475.0) -> None:
    number = paths.root.stat().st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    if disk_mb_s:
        atomic_files.write_json(paths.disk_rates, {device: disk_mb_s})
    last_weight_loads.record_load(
        paths,
        last_weight_loads.LoadRecord("mistral", 1.0, 66 * GIB, None, seconds, device, "sda1", 128),
    )


def load_findings() -> dict[str, str]:
    return {item: str(value) for kind, item, value in weights.slow_loads({}) if kind == "loading"}


def test_a_slow_load_is_a_finding_with_the_trait_of_its_disk(spark):
    mount_at(spark, "nfs4", "nas:/models", "rw")
    record_load(spark, 606)

    assert load_findings() == {
        "mistral": "loads at 117 MB/s, and its disk gives 475: a network disk (nfs4 from "
        "nas:/models). Remedy: `paths.models` on a local disk, and a deploy, which copies the "
        "weights there"
    }


def test_a_slow_load_that_no_trait_explains_names_the_journal(spark):
    record_load(spark, 606)

    assert load_findings()["mistral"].endswith(
        "do not explain it. Remedy: journalctl -u vllm.service shows the load, and memory that ran "
        "short in it"
    )


def test_a_load_near_its_disks_rate_and_one_whose_disk_nobody_measured_are_none(spark):
    record_load(spark, 160)
    assert load_findings() == {}
    spark.disk_rates.unlink()
    record_load(spark, 606, None)
    assert load_findings() == {}


def test_a_slow_port_is_a_finding_before_any_load(spark):
    sys = spark.root / "sys"
    disk = sys / "devices/usb1/1-2/1-2:1.0/block/sda"
    (disk / "sda1").mkdir(parents=True)
    (disk / "sda1/partition").write_text("1\n")
    (sys / "dev/block").mkdir(parents=True)
    (sys / "dev/block/8:1").symlink_to(disk / "sda1")
    for name, content in (("busnum", "1\n"), ("speed", "480\n")):
        (disk.parents[2] / name).write_text(content)

    (text,) = load_findings().values()
    assert text == (
        "sda is on a USB port of 480 Mbit/s, which gives at most 60 MB/s. Remedy: another port or "
        "cable of the Spark, of USB 3"
    )


def test_a_host_without_models_or_weights_has_none(spark):
    (spark.root / "data/models/mistral/model.safetensors").unlink()
    record_load(spark, 606)
    assert load_findings() == {}
    spark.models.unlink()
    assert load_findings() == {}
