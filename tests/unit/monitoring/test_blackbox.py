"""The last minutes of a host as figures, changes and gaps, on a terminal."""

from typing import Any

import pytest

from lockstep.monitoring.blackbox import Story, story
from lockstep.monitoring.blackbox_text import lines, rows
from lockstep.monitoring.kernel_log import KernelMessage, parse

GIB = 1024**3
END = 1_795_000_000.0
#: As many seconds were recorded.
SPAN = 300


def series(name: str, value: Any, **labels: str) -> dict[str, Any]:
    """A series with a value for each second of the span, by its seconds before the end."""
    backs = range(SPAN - 1, -1, -1)
    values = [[END - back, sample] for back in backs if (sample := value(back)) is not None]
    return {"name": name, "labels": labels, "values": values}


def answer(**more: Any) -> dict[str, Any]:
    """A host that ran out of memory while a model was loading, and fell silent."""
    return {
        "now": END + 720,
        "end": END,
        "alive": False,
        "booted": END - 90_000,
        "boot": None,
        "last_words": {},
        "series": [
            series("lockstep_metrics_written_timestamp_seconds", lambda back: END - back),
            series("lockstep_memory_available_bytes", lambda back: (back + 1) * GIB / 10),
            series("lockstep_gpu_temperature_celsius", lambda back: 71),
            series("lockstep_gpu_throttled", lambda back: int(back < 30), reason="heat"),
            series("lockstep_deploy_running", lambda back: 0),
            series("lockstep_switch_running", lambda back: int(back < 200)),
            series("lockstep_hot_model", lambda back: 1 if back > 190 else None, model="qwen"),
            series("lockstep_loading_model", lambda back: 1 if back < 180 else None, model="big"),
            series(
                "node_pressure_memory_stalled_seconds_total", lambda back: max(0.0, 20 - back) / 2
            ),
            series("node_disk_read_bytes_total", lambda back: -back * 1e9, device="nvme0n1"),
            series("node_disk_written_bytes_total", lambda back: 7.0, device="nvme0n1"),
        ],
        "said": [
            [END - 8, "netconsole-spark-1", "4,7,99,-;NVRM: NV_ERR_NO_MEMORY"],
            [END - 8, "netconsole-spark-1", " SUBSYSTEM=pci"],
            [END + 3, "netconsole-spark-1", "0,8,100,-;Kernel panic <b>"],
        ],
        **more,
    }


def pair_story(**more: Any) -> Story:
    return story("spark-1", "spark-2", 5, answer(**more))


def alone(**more: Any) -> Story:
    boot = {"model": "qwen", "phase": "hot", "ended": END}
    messages = [[END - 2, "kernel", "NVRM: Xid 79"]]
    return story(
        "spark-1", None, 5, answer(**{"series": [], "said": messages, "boot": boot, **more})
    )


def test_figures_have_their_units_and_a_counter_that_begins_anew_tells_nothing() -> None:
    figures = pair_story().figures
    assert figures["available_gib"][END] == pytest.approx(0.1)
    assert figures["memory_stalled_percent"][END] == pytest.approx(50)
    assert figures["disk_mb_s"][END] == pytest.approx(1000)
    assert "load" not in figures
    more = [series("node_disk_read_bytes_total", lambda back: 5.0 if back else 1.0)]
    assert END not in pair_story(series=more).figures["disk_mb_s"]


def test_changes_and_messages_are_in_the_order_of_time() -> None:
    assert [(END - event.at, event.kind, event.words) for event in pair_story().events] == [
        (199, "state", "qwen hot, switching"),
        (190, "state", "nothing hot, switching"),
        (179, "state", "big loading, switching"),
        (29, "gpu", "held down: heat"),
        (8, "kernel", "warning: NVRM: NV_ERR_NO_MEMORY"),
        (-3, "kernel", "emerg: Kernel panic <b>"),
    ]


def test_one_that_is_up_one_that_started_again_and_one_that_stood_still_are_told_apart() -> None:
    text = "\n".join(lines(pair_story()))
    assert "spark-1, recorded by spark-2: last seen at 2026-11-18 11:06:40 UTC, 12 min ago" in text
    assert "model: big loading, switching" in text
    assert "the kernel's last words, 3 s after that: emerg: Kernel panic <b>" in text
    assert [END - at for at in rows(pair_story())[-7:]] == [8, 5, 4, 3, 2, 1, 0]
    text = "\n".join(lines(pair_story(alive=True, now=END + 1)))
    assert "up, the last 5 minutes until" in text and "--before-boot" in text
    assert "it started again 50 s later" in "\n".join(lines(pair_story(booted=END + 50)))
    still = series("lockstep_metrics_written_timestamp_seconds", lambda back: END - max(back, 40))
    assert "had stood still for 40 s" in pair_story(series=[still]).unknown[0]
    assert pair_story().unknown == []


def test_one_alone_shows_what_its_kernel_kept_and_says_what_nobody_can_know() -> None:
    account = alone()
    assert max(map(len, lines(account))) <= 80
    text = " ".join(" ".join(lines(account)).split())
    for sentence in (
        *("spark-1, by its own record: last seen", "qwen was hot when it was cut off"),
        *("is recorded by no other Spark", "no Prometheus kept them", "pstore is empty"),
        *("journal: kernel: NVRM: Xid 79", "`lockstep help monitoring black-box`"),
    ):
        assert sentence in text
    account = alone(last_words={"/sys/fs/pstore/dmesg-efi-1": "Oops\nend"})
    assert list(lines(account))[-3:] == ["/sys/fs/pstore/dmesg-efi-1:", "  Oops", "  end"]
    assert not any("pstore is empty" in sentence for sentence in account.unknown)


NCFRAG = "3,7,99,-,ncfrag="


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("4,340,5140901,c;a; b, c", KernelMessage("warning", "a; b, c")),
        # A facility other than the kernel's, and more fields than are known.
        ("30,341,5140902,-;systemd[1]: hello", KernelMessage("info", "systemd[1]: hello")),
        ("2,342,5140903,-,caller=T66;oops", KernelMessage("crit", "oops")),
        # What no kernel wrote is told as it is.
        ("hello", KernelMessage("", "hello")),
        # It belongs to the line before.
        (" SUBSYSTEM=pci", None),
        # A message of several packets, and one whose first packet was lost.
        (f"{NCFRAG}0/9;abc;d{NCFRAG}5/9;efg", KernelMessage("err", "abc;defg")),
        (f"{NCFRAG}5/9;efg", KernelMessage("err", "efg")),
    ],
)
def test_a_line_of_netconsole_is_read(line: str, message: KernelMessage | None) -> None:
    assert parse(line) == message
