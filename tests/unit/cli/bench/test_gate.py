"""`lockstep bench gate`: one line per Spark, the worst exit code; and the minimum in group data."""

from pathlib import Path

from an_inventory import TWO, write_inventory
from click.testing import CliRunner, Result
from over_ssh import invoke_lockstep

from group_data.all import models
from lockstep.cli.main import main
from lockstep.onhost.core.config import Minimum

SSH = """\
for word in "$@"; do host=$command; command=$word; done
echo "$*" > "$(dirname "$0")/$host"
case $host in
  spark-1.local) echo "qwen: 71.5 tok/s (65.5 to 77.8)" ;;
  spark-2.local) {second} ;;
esac
"""


def sparks(folder: Path, **minimum: object) -> Path:
    models_with_minimum = {**models, "qwen": {**models["qwen"], "minimum": minimum}}
    return write_inventory(folder, {name: {"models": models_with_minimum} for name in TWO})


def run(folder: Path, *words: str, code: int = 0, second: str = "") -> Result:
    second = second or f'echo measuring; echo "qwen: 12.5 tok/s"; exit {code}'
    text = SSH.replace("{second}", second)
    return invoke_lockstep(
        folder, text, "bench", "gate", "-i", str(sparks(folder, decode_tok_s=60)), *words
    )


def test_one_line_per_host_and_the_worst_code(tmp_path: Path) -> None:
    for code, worst in ((0, 0), (1, 1), (2, 2), (77, 2)):
        result = run(tmp_path, code=code)
        assert result.exit_code == worst
        assert result.output.splitlines() == [
            "spark-1.local  qwen: 71.5 tok/s (65.5 to 77.8)",
            "spark-2.local  qwen: 12.5 tok/s",
        ]
    # Where sudo asks for a password nothing is below its minimum.
    result = run(tmp_path, second="echo sudo: a password is required >&2; exit 1")
    assert result.exit_code == 2
    message = "sudo: a password is required. Let the account use sudo without a password"
    assert f"spark-2.local  {message}" in result.output
    # Options reach the right host.
    (tmp_path / "bin/spark-2.local").unlink()
    result = run(tmp_path, "--accept", "--limit", "spark-1.local")
    assert result.exit_code == 0
    command = (tmp_path / "bin/spark-1.local").read_text()
    assert command.endswith("sudo -n /usr/bin/python3 /usr/local/lib/lockstep minimum --accept\n")
    assert not (tmp_path / "bin/spark-2.local").exists()


def test_a_minimum_is_a_share_or_a_speed(tmp_path: Path) -> None:
    for minimum, message in (
        ({}, "models.qwen.minimum demands nothing; found {}; allowed: "),
        ({"decode_tok_s": 0}, "decode_tok_s is no speed"),
        ({"not_below": "0.9"}, "not_below is no share"),
        ({"not_below": "120 %"}, "not_below is no share"),
    ):
        result = CliRunner().invoke(main, ["plan", "-i", str(sparks(tmp_path, **minimum))])
        assert result.exit_code == 2
        assert message in " ".join(result.output.split())
    assert Minimum(not_below="92.5%").share == 0.925
    assert Minimum(decode_tok_s=29.0).share is None
