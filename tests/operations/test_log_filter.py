"""The output of `pyinfra INVENTORY deploy.py`: each change, and nothing about unchanged things."""

import logging
import subprocess
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from a_site import Site
from an_older_site import UNIT, outdate
from fake_spark import HOSTS
from pyinfra import logger

from lockstep.tasks.run import deploy_lock, log_filter, remote_commands
from lockstep.tasks.run import reader_answers as facts

ONE, _ = HOSTS
_HEADING = "--> Starting operation: "


def operations(result: subprocess.CompletedProcess[str]) -> list[str]:
    """The headings of operations, without their frame."""
    lines = result.stderr.splitlines()
    return [line.removeprefix(_HEADING).strip() for line in lines if line.startswith(_HEADING)]


@pytest.mark.slow
def test_the_second_deploy_changes_nothing_asks_once_and_names_no_operation(site, whole) -> None:
    result = site.deploy()
    assert site.document["hosts"] == whole
    assert [site.commands(host) for host in HOSTS] == [["? all"], ["? all"]]
    assert operations(result) == []
    assert "None." in site.deploy("--dry").stderr
    # Who asks for every line gets it.
    result = site.deploy("-v")
    assert len(operations(result)) > 30 and "No changes" in result.stderr


@pytest.mark.slow
def test_of_an_older_host_only_the_steps_that_differ_are_named(site: Site) -> None:
    outdate(site, ONE)
    result = site.deploy()
    restart = "Services | Restart hot models, one host at a time"
    assert operations(result) == [restart]
    lines = [line.strip() for line in result.stderr.splitlines()]
    # It stands above all that is done in it.
    assert lines[lines.index(f"{_HEADING}{restart}") + 1].endswith(f"one host at a time: {UNIT}")


@pytest.fixture
def log_lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The lines of pyinfra's log, without the meaningless ones."""
    lines: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    monkeypatch.setattr(logger, "handlers", [Handler()])
    monkeypatch.setattr(logger, "filters", [])
    monkeypatch.setattr(logger, "propagate", False)
    monkeypatch.setattr(log_filter, "_filters", [])
    earlier_level = logger.level
    logger.setLevel(logging.INFO)
    log_filter.leave_out_unchanged_operations(SimpleNamespace(print_noop_info=False))
    yield lines
    logger.setLevel(earlier_level)


def test_a_command_that_may_take_long_is_not_silent(log_lines, monkeypatch) -> None:
    """The command's output bypasses the log, and comes under the operation's name."""
    monkeypatch.setattr(deploy_lock, "is_lock_lost", lambda host: False)
    monkeypatch.setattr(deploy_lock, "report_change", lambda host: None)
    monkeypatch.setattr(facts, "drop_answers", lambda host: None)
    at: list[list[str]] = []
    monkeypatch.setattr(
        remote_commands.ChangingCommand, "send_to_host", lambda *_: at.append(list(log_lines))
    )
    for name in ("Base | Install packages", "Images | Pull images by digest"):
        logger.info(f"{_HEADING}{name} ")
        logger.info("[spark1] No changes")
        logger.info("[a-much-longer-name] No changes")
    remote_commands.changing_command(["true"]).execute(None, SimpleNamespace(name="spark2"), {})
    assert at == [[f"{_HEADING}Images | Pull images by digest "]]
    logger.info("[spark2] Success")
    assert log_lines[1:] == ["[spark2] Success"]


def test_a_warning_is_never_left_out(log_lines: list[str]) -> None:
    for line in (
        f"{_HEADING}Base | Install packages ",
        "--> Detected changes:",
        "Base | Install packages      1       -       ",
        "Images | Pull images         -       -       ",
        "--> Results:",
        "Base | Install packages      2       -         1       1           ",
        "Images | Pull images         2       2         -       -           ",
        "Weights | Fetch              2       -         -       2           ",
    ):
        logger.info(line)
        logger.warning("[spark1] a source of apt fails - - 3")
    assert [line.split("  ")[0] for line in log_lines if "source of apt" not in line] == [
        f"{_HEADING}Base | Install packages ",
        *("--> Detected changes:", "Base | Install packages"),
        *("--> Results:", "Base | Install packages", "Images | Pull images"),
    ]
    assert len(log_lines) == 6 + 8
