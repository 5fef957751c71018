"""`lockstep deploy`: what it prints, asks and ends with, whatever the deploy under it says."""

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import a_run
import pytest
from a_run import good, step
from click.testing import CliRunner, Result
from rich.console import Console

from lockstep.cli import deploy
from lockstep.cli.main import main
from lockstep.core.findings import Finding
from lockstep.deploy import events
from lockstep.deploy.plan import DeployPlan
from lockstep.deploy.summary import HostOutcome

QWEN = events.Interrupts("spark1", "qwen", again=True, requests=3)

INVENTORY = 'spark = [(name, {"operators": ("anna",)}) for name in ("spark1", "spark2")]\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an inventory, and logs of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spark.py").write_text(INVENTORY, encoding="utf-8")
    return tmp_path


Deploy = Callable[..., Result]


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Deploy:
    """Gives the end of `lockstep deploy WORDS` when the deploy prints these messages."""

    def run_deploy(messages: list[Any], *words: str) -> Result:
        argv = a_run.argv(folder, messages)
        monkeypatch.setattr(deploy, "deploy_command", lambda *_: argv)
        return CliRunner().invoke(main, ["deploy", "-i", "spark.py", *words])

    return run_deploy


def lines(result: Result) -> list[str]:
    """The printed lines below its heading."""
    heading, *body = result.output.splitlines()
    assert heading.startswith("Lockstep · spark.py · all lines: state/lockstep/deploys/")
    return [re.sub(r"\b\d:\d\d\b", "0:00", line) for line in body]


def test_a_run_says_what_is_empty_what_changed_and_what_to_open(run: Deploy) -> None:
    outcome = good("spark1", page="http://127.0.0.1:8090", chat="http://10.0.0.11:8080")
    messages = [
        events.RunStart(["spark1", "spark2"]),
        events.Empty("spark2", True, ["weights: 68.0 GB, 1 from spark1"]),
        events.Ready(),
        *step("Base | Install packages", ["spark1"]),
        *step("Firewall | Write rules", ["spark1", "spark2"]),
        *step("Images | Pull images by digest"),
        *step("Gateway | Write the gateway", ["spark2"]),
        events.Over([outcome, good("spark2", ["qwen"])]),
    ]
    first, *more, last = lines(run(messages))
    assert first.startswith("spark2 was deployed to before, and nothing of it is there")
    assert more[:3] == [
        "  weights: 68.0 GB, 1 from spark1",
        "packages      0:00  spark1, spark2: 2 steps",
        "gateway       0:00  spark2: Write the gateway",
    ]
    assert more[3].startswith("Done, 0:00.") and more[3].endswith("Hot on spark2: qwen.")
    assert last.startswith("Page: http://127.0.0.1:8090, https://10.0.0.11:8443   Chat: http://10")
    assert last.endswith("   (on this machine: lockstep open -i spark.py)")


def test_a_failure_shows_step_host_last_lines_and_remedy(run: Deploy) -> None:
    messages = [
        "    [spark3] Could not connect ([Errno None] Unable to connect to port 22 on 10.0.0.3)",
        events.RunStart(["spark1", "spark5"]),
        events.StepProgress("Base | Install packages"),
        "    [spark5] its words of an earlier step",
        "    [spark1] E: Unable to locate package nosuch",
        "    [spark1] Error: executed 1 commands",
        events.OperationDone("Base | Install packages", ["spark5"], ["spark1"]),
        *step("Weights | Fetch", [], ["spark5"]),
        events.Over(
            [
                HostOutcome("spark1", "Base | Install packages"),
                HostOutcome("spark5", "Weights | Fetch"),
                HostOutcome("spark3", "connecting over SSH"),
            ]
        ),
        1,
    ]
    result = run(messages)
    assert result.exit_code == 1
    assert lines(result)[1:] == [
        "FAILED  spark1: Base | Install packages",
        "        E: Unable to locate package nosuch",
        "FAILED  spark5: Weights | Fetch",
        "FAILED  spark3: connecting over SSH",
        "        Could not connect (Unable to connect to port 22 on 10.0.0.3)",
        "        The host is off, or its address is wrong. Remedy: check `ssh HOST`, or",
        "          deploy the others with --limit.",
        "Run the same command again: it goes on where this run ended.",
    ]


TABLE = " spark1  error  disk: 12 GiB free\n                -> free some\n\nMend it."


@pytest.mark.parametrize(
    ("messages", "code", "text"),
    [
        ([events.RunStart(["spark1"]), events.RunRefusal(TABLE), events.Over([]), 1], 1, TABLE),
        (["spark.py:3: unknown key 'operator'. Nothing was changed.", 2], 2, "unknown key"),
        (["Traceback (most recent call last):", '  File "x"', "KeyError: 'a'", 1], 1, "KeyError"),
    ],
    ids=["a refusal", "wrong data", "a fault of ours"],
)
def test_a_run_that_did_not_begin_shows_why(run, messages, code, text) -> None:
    result = run(messages)
    assert result.exit_code == code
    assert text in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("words", "answer"), [((), "answered false"), (("--yes",), "answered true")]
)
def test_what_it_interrupts_is_said_first_and_needs_a_yes(folder, run, words, answer) -> None:
    result = run([events.RunStart(["spark1"]), QWEN, events.Ready()], *words)
    interruption = "  spark1: qwen is hot: it restarts; 3 requests under way"
    assert lines(result)[:2] == ["This deploy interrupts:", interruption]
    assert answer in next((folder / "state").rglob("*.log")).read_text(encoding="utf-8")


def test_a_dry_run_says_what_would_change_and_restart_and_who_is_held_back(
    folder: Path, run: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    would = {
        "Base | Install packages": ["spark2"],
        "Weights | Fetch and verify weights": ["spark1"],
        "Services | Restart hot models, one host at a time": ["spark1"],
        "Services | Write launchers and units": ["spark1", "spark2"],
    }
    over = events.Over([HostOutcome("spark1", news=["a port is closed"])], [], would)
    messages = [events.RunStart(["spark1", "spark2"]), QWEN, over]
    monkeypatch.setattr(deploy, "make", lambda _: DeployPlan((), (), ()))
    result = run(messages, "--dry")
    assert result.exit_code == 0
    assert result.output.splitlines()[:2] == ["", "0 error(s), 0 warning(s), 0 waived"]
    assert result.output.splitlines()[3:] == [
        "would  spark2: Install packages",
        "would  spark1: Fetch and verify weights",
        "would  spark1: Restart hot models, one host at a time",
        "would  spark1, spark2: Write launchers and units",
        "This deploy interrupts:",
        "  spark1: qwen is hot: it restarts; 3 requests under way",
        "Note: a port is closed",
        "After a failure, packages stay installed, upgraded or purged.",
        "After a failure, images, engines and weights stay until lockstep gc.",
        "The files are named in the log; --diff shows what differs in them.",
    ]
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "later"))
    result = run(messages, "--dry", "--keep-hot")
    assert result.output.splitlines()[3:7] == [
        "would  spark2: Install packages",
        "would  spark1: Fetch and verify weights",
        "would  spark2: Write launchers and units",
        "spark1: qwen stays hot; this host is held back",
    ]
    assert "goes with --dry" in run(messages, "--diff").output
    finding = Finding("gpu-memory-short", "error", "spark1: qwen", "it does not fit", "Bind less.")
    monkeypatch.setattr(deploy, "make", lambda _: DeployPlan((), (finding,), ()))
    result = run(messages, "--dry")
    assert result.exit_code == 1
    # No host was asked.
    assert "it does not fit" in result.output and "Lockstep · " not in result.output


def test_ctrl_c_at_the_question_changes_nothing(folder, run, monkeypatch) -> None:
    def ctrl_c(_: object) -> None:
        raise KeyboardInterrupt("Nothing was changed.")

    terminal = Console(width=80, force_terminal=True, file=io.StringIO())
    monkeypatch.setattr("lockstep.core.terminal.console", lambda: terminal)
    streams = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(deploy, "sys", SimpleNamespace(stdin=streams, stdout=sys.stdout))
    monkeypatch.setattr(deploy, "confirm", ctrl_c)
    result = run([events.RunStart(["spark1"]), QWEN, events.Ready()])
    assert result.exit_code == 130
    assert result.output.endswith("Ended by Ctrl-C. Nothing was changed.\n")
    assert "answered" not in next((folder / "state").rglob("*.log")).read_text()
    # Each picture that hides the cursor shows it again.
    output = terminal.file.getvalue()
    assert output.count("\x1b[?25l") == output.count("\x1b[?25h") > 0
