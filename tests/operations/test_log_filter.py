"""The output of `pyinfra INVENTORY deploy.py`: each change, and nothing about unchanged things."""

import logging
from types import SimpleNamespace

import pytest
from fake_spark import HOSTS

from lockstep.tasks.run import log_filter

_HEADING = "--> Starting operation: "


@pytest.mark.slow
def test_the_second_deploy_changes_nothing_asks_once_and_names_no_operation(site, whole) -> None:
    result = site.deploy()
    assert site.document["hosts"] == whole
    assert [site.commands(host) for host in HOSTS] == [["? all"], ["? all"]]
    assert _HEADING not in result.stderr
    assert "None." in site.deploy("--dry").stderr
    # Who asks for every line gets it.
    result = site.deploy("-v")
    assert result.stderr.count(_HEADING) > 30 and "No changes" in result.stderr


def test_a_warning_is_never_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    shown_lines: list[str] = []
    # An operation is printed when something follows it.
    handler = SimpleNamespace(handle=lambda record: shown_lines.append(record.msg))
    monkeypatch.setattr(log_filter.logger, "handlers", [handler])
    filters = log_filter._Filter(None)
    for line in (
        f"{_HEADING}Images | Pull images",
        "[spark1] No changes",
        f"{_HEADING}Base | Install packages",
        "[spark1] a source of apt fails - - 3",
        "--> Detected changes:",
        "Images | Pull images         -       -       ",
        "--> Results:",
        "Base | Install packages      2       -         1       1           ",
        "Weights | Fetch              2       -         -       2           ",
    ):
        if filters.filter(logging.makeLogRecord({"msg": line})):
            shown_lines.append(line)
    assert [line.split("  ")[0] for line in shown_lines] == [
        *(f"{_HEADING}Base | Install packages", "[spark1] a source of apt fails - - 3"),
        *("--> Detected changes:", "--> Results:", "Base | Install packages"),
    ]
