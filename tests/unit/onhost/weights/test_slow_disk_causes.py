"""Loads slower than half of their disk, and traits that make a disk slow, as diff tells them."""

import os
from pathlib import Path

import pytest
from a_model import about
from onhost_fakes import host_root

from lockstep.onhost.core import atomic_files, layout
from lockstep.onhost.facts import weights
from lockstep.onhost.records import last_weight_loads

GIB = 2**30
ON_USB_2 = (
    "sda is on a USB port of 480 Mbit/s, which gives at most 60 MB/s. Remedy: another port or "
    "cable of the Spark, of USB 3"
)


class Spark:
    """A host whose model's weights are one file in a folder, on a disk of 475 MB/s."""

    def __init__(self, folder, monkeypatch):
        models = {"mistral": about(weights=["/data/models/mistral"], unit="vllm.service")}
        # The blank is in the kernel's table as \040.
        self.paths = host_root(folder / "my root", models, 100.0)
        self.file = self.paths.root / "data/models/mistral/model.safetensors"
        self.file.parent.mkdir(parents=True)
        self.file.write_bytes(b"x")
        monkeypatch.setattr(layout, "Paths", lambda: self.paths)
        self.sys = self.paths.root / "sys"
        self.add_disk("nvme/nvme0n1", "259:2", "nvme0n1p2")
        self.sda = self.add_disk("usb2/2-1/2-1:1.0/host0/block/sda", "8:1", "sda1")
        for port, speed in (("usb2", "10000"), ("usb2/2-1", "480")):
            (self.sys / "devices" / port / "busnum").write_text("2\n")
            self.port = self.sys / "devices" / port / "speed"
            self.port.write_text(f"{speed}\n")
        vault = self.add_disk("virtual/block/dm-0", "253:0")
        for name in ("dm", "slaves"):
            (vault / name).mkdir()
        (vault / "dm/uuid").write_text("CRYPT-LUKS2-0123-vault\n")
        (vault / "slaves/sda1").symlink_to(self.sda)
        self.mount_at("259:2 ext4 /dev/nvme0n1p2 rw")

    def add_disk(self, folder: str, number: str, partition: str = "") -> Path:
        """Put a block device, or a partition of it, into sysfs as the kernel does."""
        path = self.sys / "devices" / folder / partition
        path.mkdir(parents=True)
        if partition:
            (path / "partition").write_text("1\n")
        for place, name in (("dev/block", number), ("class/block", path.name)):
            (self.sys / place).mkdir(parents=True, exist_ok=True)
            (self.sys / place / name).symlink_to(path)
        return path

    def mount_at(self, mount: str) -> None:
        """Mount a device of this number, kind, source and options where the weights are."""
        mountinfo = self.paths.proc / "self/mountinfo"
        mountinfo.parent.mkdir(parents=True, exist_ok=True)
        place = str(self.paths.root.resolve()).replace(" ", r"\040")
        device, kind, source, options = mount.split()
        mountinfo.write_text(
            "22 1 0:9 / / rw,relatime shared:1 - zfs root rw,errors=remount-ro\n"
            f"45 22 0:9 / {place} rw - zfs hidden-by-the-next rw\n"
            f"40 22 {device} / {place} rw,relatime shared:9 master:3 - {kind} {source} {options}\n"
            f"41 22 0:9 / {place}-of-others rw - zfs theirs rw\n"
        )

    def record_load(self, seconds: float, disk_mb_s: float | None = 475.0) -> None:
        number = self.paths.root.stat().st_dev
        device = f"{os.major(number)}:{os.minor(number)}"
        if disk_mb_s:
            atomic_files.write_json(self.paths.disk_rates, {device: disk_mb_s})
        load = "mistral", 1.0, 66 * GIB, None, seconds, device, "sda1", 128
        last_weight_loads.record_load(self.paths, last_weight_loads.LoadRecord(*load))

    @property
    def findings(self) -> dict[str, str]:
        facts = weights.slow_loads({})
        return {item: str(value) for kind, item, value in facts if kind == "loading"}


@pytest.fixture
def spark(tmp_path, monkeypatch):
    return Spark(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("mount", "traits"),
    [
        ("259:2 ext4 /dev/nvme0n1p2 rw", "do not explain it. Remedy: journalctl -u vllm.service"),
        ("253:0 xfs /dev/mapper/vault rw", f"{ON_USB_2}; encrypted (dm-crypt on dm-0). Remedy"),
        # btrfs has a number of its own.
        ("0:61 btrfs /dev/sda1 rw", ON_USB_2),
        ("0:61 btrfs /dev/sdb1 rw,compress=zstd:3,ssd", "compressed (btrfs, compress=zstd:3)"),
        ("0:63 zfs tank/models rw", "ZFS, with a cache of its own: `zfs get compression tank/mod"),
        ("0:62 nfs4 nas:/models rw", "a network disk (nfs4 from nas:/models)"),
    ],
)
def test_a_slow_load_is_a_finding_with_the_traits_of_its_disk(spark, mount, traits):
    spark.mount_at(mount)
    spark.record_load(606)
    finding = spark.findings["mistral"]
    assert finding.startswith("loads at 117 MB/s, and its disk gives 475") and traits in finding


def test_a_slow_port_is_a_finding_before_any_load_and_a_fast_one_is_none(spark):
    spark.mount_at("8:1 ext4 /dev/sda1 rw")
    assert list(spark.findings.values()) == [ON_USB_2]
    spark.port.write_text("5000\n")
    assert spark.findings == {}


def test_a_quick_load_an_unmeasured_disk_no_weights_and_no_models_are_no_finding(spark):
    # It begins at half of the disk's own rate.
    spark.record_load(298)
    assert spark.findings == {}
    spark.paths.disk_rates.unlink()
    spark.record_load(606, None)
    assert spark.findings == {}
    spark.record_load(606)
    spark.file.unlink()
    assert spark.findings == {}
    spark.paths.models.unlink()
    assert spark.findings == {}
