"""Lines of a kernel's log, as a receiver of netconsole has them."""

from __future__ import annotations

import pytest

from lockstep.monitoring.kernel_log import KernelMessage, parse


@pytest.mark.parametrize(
    ("line", "record"),
    [
        (
            "3,339,5140900,-;NVRM: Xid (PCI:000f:01:00): 79",
            KernelMessage("err", "NVRM: Xid (PCI:000f:01:00): 79"),
        ),
        ("4,340,5140901,c;a; b, c", KernelMessage("warning", "a; b, c")),
        # A facility other than the kernel's.
        ("30,341,5140902,-;systemd[1]: hello", KernelMessage("info", "systemd[1]: hello")),
        # More fields than are known.
        ("2,342,5140903,-,caller=T66;oops", KernelMessage("crit", "oops")),
        # What no kernel wrote is told as it is.
        ("hello", KernelMessage("", "hello")),
        ("", KernelMessage("", "")),
    ],
)
def test_a_line(line: str, record: KernelMessage) -> None:
    assert parse(line) == record


def test_what_belongs_to_the_line_before_is_left_out() -> None:
    assert parse(" SUBSYSTEM=pci") is None


def test_a_message_of_several_packets_is_whole() -> None:
    head = "3,7,99,-,ncfrag="
    line = f"{head}0/9;abc;d{head}5/9;efg"
    assert parse(line) == KernelMessage("err", "abc;defg")
    # The first packet was lost.
    assert parse(f"{head}5/9;efg") == KernelMessage("err", "efg")
