"""Diff's findings about loads: slower than half of the disk, with the disk's own traits."""

from __future__ import annotations

import os

import pytest
from a_model import about
from onhost_fakes import host_root

from lockstep.onhost.core import atomic_files, layout
from lockstep.onhost.facts import weights
from lockstep.onhost.records import last_weight_loads

GIB = 2**30


@pytest.fixture
def spark(tmp_path, monkeypatch) -> layout.Paths:
    """A host whose model's weights are one file in a folder, on a disk of 475 MB/s."""
    models = {"mistral": about(weights=["/data/models/mistral"], unit="vllm.service")}
    paths = host_root(tmp_path / "root", models, 100.0)
    file = paths.root / "data/models/mistral/model.safetensors"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"x")
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
    load = "mistral", 1.0, 66 * GIB, None, seconds, device, "sda1", 128
    last_weight_loads.record_load(paths, last_weight_loads.LoadRecord(*load))


def load_findings() -> dict[str, str]:
    return {item: str(value) for kind, item, value in weights.slow_loads({}) if kind == "loading"}


def test_a_slow_load_is_a_finding_with_the_trait_of_its_disk_or_the_journal(spark):
    record_load(spark, 606)
    assert load_findings()["mistral"].endswith(
        "do not explain it. Remedy: journalctl -u vllm.service shows the load, and memory that ran "
        "short in it"
    )
    mount_at(spark, "nfs4", "nas:/models", "rw")
    assert load_findings() == {
        "mistral": "loads at 117 MB/s, and its disk gives 475: a network disk (nfs4 from "
        "nas:/models). Remedy: `paths.models` on a local disk, and a deploy, which copies the "
        "weights there"
    }


def test_a_quick_load_an_unmeasured_disk_no_weights_and_no_models_are_no_finding(spark):
    record_load(spark, 160)
    assert load_findings() == {}
    spark.disk_rates.unlink()
    record_load(spark, 606, None)
    assert load_findings() == {}
    record_load(spark, 606)
    (spark.root / "data/models/mistral/model.safetensors").unlink()
    assert load_findings() == {}
    spark.models.unlink()
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
