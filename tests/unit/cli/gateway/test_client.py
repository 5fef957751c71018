"""`lockstep client`: the file on standard output, what else is needed beside it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from an_inventory import ANNA, PAIR, written
from click.testing import CliRunner, Result

from lockstep.cli.main import main
from lockstep.clients.programs import PROGRAMS

HOSTS = {
    "spark-1.local": ANNA,
    "spark-2.local": {**ANNA, "gateway": {"bind": "0.0.0.0", "tls": "own"}},
}
KEY = "lk-secret"


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    (tmp_path / "anna.key").write_text(f"{KEY}\n")
    return written(tmp_path, HOSTS)


def run(inventory: Path, program: str, *words: str) -> Result:
    return CliRunner().invoke(main, ["client", program, "-i", str(inventory), *words])


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_key_is_printed(inventory: Path, program: str) -> None:
    done = run(inventory, program, "--key-file", str(inventory.parent / "anna.key"))
    assert done.exit_code == 0, done.output
    assert KEY not in done.output
    assert str(inventory.parent / "anna.key") in done.output


def test_standard_output_is_the_file_alone(inventory: Path) -> None:
    done = run(inventory, "opencode", "--model", "qwen")
    assert json.loads(done.stdout)["model"] == "lockstep/qwen"
    assert done.stderr.splitlines() == [
        "First, and as long as you work: ssh spark-1.local -N -L 8090:127.0.0.1:8090",
        "LOCKSTEP_KEY: any text; this door needs no key.",
        "It goes to ~/.config/opencode/opencode.json.",
    ]


def test_a_host_that_is_open_needs_a_key_and_its_authority(inventory: Path) -> None:
    done = run(inventory, "codex", "--host", "spark-2.local")
    base = tomllib.loads(done.stdout)["model_providers"]["lockstep"]["base_url"]
    assert base == "https://spark-2.local:8443/v1"
    assert done.stderr.splitlines() == [
        "LOCKSTEP_KEY must hold your key.",
        "CODEX_CA_CERTIFICATE must name a file with https://spark-2.local:8443/root.crt.",
        "It goes to ~/.codex/lockstep.config.toml.",
    ]


def test_who_reads_no_file_is_told_the_line(inventory: Path) -> None:
    key = inventory.parent / "anna.key"
    done = run(inventory, "aider", "--key-file", str(key))
    assert f'First: export OPENAI_API_KEY="$(cat {key})"' in done.stderr
    assert done.stdout.startswith("# ~/.aider.conf.yml\nmodel: openai/auto\n")
    assert "\n# ~/.aider.model.metadata.json\n{\n" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--model", "gpt-5"), "no such model; found gpt-5; allowed: auto, qwen, mistral"),
        (("--key-file", "/nowhere"), "'/nowhere' does not exist"),
    ],
)
def test_wrong_use(inventory: Path, words: tuple[str, ...], said: str) -> None:
    done = run(inventory, "claude", *words)
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())


def test_a_member_that_does_not_answer_offers_nothing(inventory: Path) -> None:
    written(inventory.parent, PAIR)
    assert json.loads(run(inventory, "claude", "--host", "spark-1.local").stdout)
    done = run(inventory, "claude", "--host", "spark-2.local")
    assert done.exit_code == 2
    assert "no such model; found auto; allowed: none answers" in " ".join(done.output.split())
