"""Traits that make a disk slow, from mounts and sysfs as they are on Linux."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.onhost.weights import slow_disk_causes

MOUNTINFO = """\
22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro
31 22 0:27 / /run rw,nosuid shared:5 - tmpfs tmpfs rw,size=1G
40 22 8:1 / /data rw,relatime shared:9 master:3 - ext4 /dev/sda1 rw
41 40 253:0 / /data/my\\040vault rw - xfs /dev/mapper/vault rw
42 40 0:61 /@models /data/packed rw - btrfs /dev/sdb1 rw,compress=zstd:3,ssd
43 40 0:62 / /data/far rw - nfs4 nas:/models rw,vers=4.2
44 40 0:63 / /data/pool rw - zfs tank/models rw,xattr
45 22 8:17 / /twice rw - ext4 /dev/old rw
46 22 259:2 / /twice rw - ext4 /dev/nvme0n1p2 rw
"""


def a_disk(sys: Path, folder: str, number: str, partition: str = "") -> Path:
    """Put a block device, or a partition of it, into sysfs as the kernel does."""
    path = sys / "devices" / folder / partition
    path.mkdir(parents=True)
    if partition:
        (path / "partition").write_text("1\n")
    for place, name in (("dev/block", number), ("class/block", path.name)):
        (sys / place).mkdir(parents=True, exist_ok=True)
        (sys / place / name).symlink_to(path)
    return path


def a_port(sys: Path, folder: str, speed: str) -> None:
    path = sys / "devices" / folder
    path.mkdir(parents=True, exist_ok=True)
    (path / "busnum").write_text("2\n")
    (path / "speed").write_text(f"{speed}\n")


@pytest.fixture
def sys(tmp_path):
    sys = tmp_path / "sys"
    nvme = a_disk(sys, "pci0/nvme/nvme0/nvme0n1", "259:2", "nvme0n1p2")
    a_disk(sys, "usb2/2-1/2-1:1.0/host0/target0/block/sda", "8:1", "sda1")
    a_disk(sys, "usb2/2-2/2-2:1.0/host1/target0/block/sdb", "8:17", "sdb1")
    a_port(sys, "usb2", "10000")
    a_port(sys, "usb2/2-1", "480")
    a_port(sys, "usb2/2-2", "5000")
    vault = a_disk(sys, "virtual/block/dm-0", "253:0")
    (vault / "dm").mkdir()
    (vault / "dm/uuid").write_text("CRYPT-LUKS2-0123-vault\n")
    (vault / "slaves").mkdir()
    (vault / "slaves/nvme0n1p2").symlink_to(nvme)
    return sys


def traits(path: str, sys: Path) -> list[str]:
    mount = slow_disk_causes.mount_of(Path(path), slow_disk_causes.mounts(MOUNTINFO))
    assert mount is not None
    return list(slow_disk_causes.slow_traits(mount, sys))


@pytest.mark.parametrize(
    ("path", "beginnings"),
    [
        ("/data/models/a", ["sda is on a USB port of 480 Mbit/s, which gives at most 60 MB/s. Re"]),
        ("/data/my vault/a", ["encrypted (dm-crypt on dm-0). Remedy: "]),
        ("/data/packed/a", ["compressed (btrfs, compress=zstd:3), and weights do not shrink. Re"]),
        ("/data/far/a", ["a network disk (nfs4 from nas:/models). Remedy: `paths.models` on a l"]),
        ("/data/pool/a", ["ZFS, with a cache of its own: `zfs get compression tank/models`. Rem"]),
        ("/opt/a", []),
        ("/run/a", []),
        ("/twice/a", []),
        ("/data-of-others/a", []),
    ],
)
def test_each_trait_has_its_words_and_a_remedy_and_a_disk_in_a_fast_port_has_none(
    sys, path, beginnings
):
    for trait, start in zip(traits(path, sys), beginnings, strict=True):
        assert trait.startswith(start)
        assert ". Remedy: " in trait


def test_an_encrypted_disk_on_a_slow_port_has_both_until_it_is_at_a_fast_one(sys):
    slow = sys / "class/block/sda1"
    (sys / "devices/virtual/block/dm-0/slaves/sda1").symlink_to(slow.resolve())
    assert len(traits("/data/my vault/a", sys)) == 2
    (sys / "devices/usb2/2-1/speed").write_text("5000\n")
    assert len(traits("/data/my vault/a", sys)) == 1


def test_the_machine_that_runs_this_has_readable_mounts():
    mounts = slow_disk_causes.mounts(Path("/proc/self/mountinfo").read_text())

    mount = slow_disk_causes.mount_of(Path("/proc/self"), mounts)
    assert mount is not None and mount.kind == "proc"
    assert list(slow_disk_causes.slow_traits(mount, Path("/sys"))) == []
