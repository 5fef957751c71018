"""The last minutes of a host as figures, changes and gaps, on a terminal."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.monitoring.blackbox import Story, story
from lockstep.monitoring.blackbox_text import lines, rows, sparkline

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


def test_figures_have_their_units() -> None:
    figures = pair_story().figures
    assert figures["available_gib"][END] == pytest.approx(0.1)
    assert figures["memory_stalled_percent"][END] == pytest.approx(50)
    assert figures["disk_mb_s"][END] == pytest.approx(1000)
    assert "load" not in figures


def test_a_counter_that_begins_anew_tells_nothing() -> None:
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


def test_the_terminal_shows_each_second_of_the_end_and_fits_80_columns() -> None:
    account = pair_story()
    shown_lines = list(lines(account))
    assert max(map(len, shown_lines)) <= 80
    assert [END - at for at in rows(account)[-7:]] == [8, 5, 4, 3, 2, 1, 0]
    text = "\n".join(shown_lines)
    assert "spark-1, recorded by spark-2: last seen at 2026-11-18 11:06:40 UTC, 12 min ago" in text
    assert "model: big loading, switching" in text
    assert "the kernel's last words, 3 s after that: emerg: Kernel panic <b>" in text
    table = [line for line in shown_lines if line.startswith("11:06:")]
    assert table.index("11:06:32  kernel: warning: NVRM: NV_ERR_NO_MEMORY") < table.index(
        "11:06:43  kernel: emerg: Kernel panic <b>"
    )
    assert any(line.startswith("memory GiB") and "0.1 to 30.0" in line for line in shown_lines)


def test_one_that_is_up_says_how_to_look_before_its_boot_and_one_that_started_again_when() -> None:
    text = "\n".join(lines(pair_story(alive=True, now=END + 1)))
    assert "up, the last 5 minutes until" in text and "--before-boot" in text
    assert "it started again 50 s later" in "\n".join(lines(pair_story(booted=END + 50)))


def test_figures_that_stood_still_before_the_end_are_said() -> None:
    still = series("lockstep_metrics_written_timestamp_seconds", lambda back: END - max(back, 40))
    assert "had stood still for 40 s" in pair_story(series=[still]).unknown[0]
    assert pair_story().unknown == []


def test_one_alone_says_what_nobody_can_know() -> None:
    account = alone()
    assert max(map(len, lines(account))) <= 80
    text = " ".join(" ".join(lines(account)).split())
    assert "spark-1, by its own record: last seen" in text
    assert "qwen was hot when it was cut off" in text
    assert "is recorded by no other Spark" in text
    assert "no Prometheus kept them" in text and "pstore is empty" in text
    assert "journal: kernel: NVRM: Xid 79" in text
    assert "`lockstep help monitoring black-box`" in text


def test_one_alone_shows_what_its_kernel_kept() -> None:
    account = alone(last_words={"/sys/fs/pstore/dmesg-efi-1": "Oops\nend"})
    shown_lines = list(lines(account))
    assert shown_lines[-3:] == ["/sys/fs/pstore/dmesg-efi-1:", "  Oops", "  end"]
    assert not any("pstore is empty" in sentence for sentence in account.unknown)


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ([1.0], "▁"),
        ([5.0, 5.0], "▁▁"),
        ([0.0, 7.0], "▁█"),
        ([0.0] * 80 + [8.0] * 80, "▁" * 20 + "█" * 20),
    ],
)
def test_a_sparkline(values: list[float], line: str) -> None:
    assert sparkline(values) == line
