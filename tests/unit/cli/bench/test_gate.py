"""`lockstep bench gate`: one line per Spark, the worst exit code; and the minimum in group data."""

from pathlib import Path

from an_inventory import TWO, write_inventory
from click.testing import CliRunner

from group_data.all import models
from lockstep.cli.bench import gate as module
from lockstep.cli.main import main
from lockstep.fleet.hosts import HostAnswer
from lockstep.onhost.core.config import Minimum


def sparks(folder: Path, **minimum: object) -> str:
    own_models = {**models, "qwen": {**models["qwen"], "minimum": minimum}}
    return str(write_inventory(folder, {name: {"models": own_models} for name in TWO}))


def test_one_line_per_host_and_the_worst_code(tmp_path, monkeypatch) -> None:
    commands = {}
    good = HostAnswer(0, "qwen: 71.5 tok/s (65.5 to 77.8)\n")

    def run(second: HostAnswer, *words: str) -> tuple[int, list[str]]:
        def ask(login, argv):
            commands[login.name] = argv
            return good if login.name == "spark-1.local" else second

        monkeypatch.setattr(module, "ask", ask)
        path = sparks(tmp_path, decode_tok_s=60)
        result = CliRunner().invoke(main, ["bench", "gate", "-i", path, *words])
        return result.exit_code, result.output.splitlines()

    first = "spark-1.local  qwen: 71.5 tok/s (65.5 to 77.8)"
    for code, worst in ((0, 0), (1, 1), (2, 2), (77, 2)):
        answer = HostAnswer(code, "measuring\nqwen: 12.5 tok/s\n")
        assert run(answer) == (worst, [first, "spark-2.local  qwen: 12.5 tok/s"])
    # Where sudo asks for a password nothing is below its minimum.
    answer = HostAnswer(1, err="sudo: a password is required", fault="a password is required")
    assert run(answer) == (2, [first, "spark-2.local  a password is required"])
    # Options reach the right host.
    commands.clear()
    assert run(good, "--accept", "--limit", "spark-1.local") == (0, [first])
    programs = ["/usr/bin/python3", "/usr/local/lib/lockstep"]
    assert commands == {"spark-1.local": ["sudo", "-n", *programs, "minimum", "--accept"]}


def test_a_minimum_is_a_share_or_a_speed(tmp_path: Path) -> None:
    for minimum, message in (
        ({}, "models.qwen.minimum demands nothing; found {}; allowed: "),
        ({"decode_tok_s": 0}, "decode_tok_s is no speed"),
        ({"not_below": "0.9"}, "not_below is no share"),
        ({"not_below": "120 %"}, "not_below is no share"),
    ):
        result = CliRunner().invoke(main, ["plan", "-i", sparks(tmp_path, **minimum)])
        assert result.exit_code == 2
        assert message in " ".join(result.output.split())
    assert Minimum(not_below="92.5%").share == 0.925
    assert Minimum(decode_tok_s=29.0).share is None
