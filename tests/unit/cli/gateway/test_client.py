"""`lockstep client`: the file on standard output, what else is needed beside it; and the check."""

import contextlib
import json
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from an_inventory import ANNA, PAIR, write_inventory
from click.testing import CliRunner, Result

from lockstep.cli.gateway import client as module
from lockstep.cli.main import main
from lockstep.clients.check import ClientResult, GatewayAddress, Shape
from lockstep.clients.programs import PROGRAMS
from lockstep.fleet.login import Login
from lockstep.fleet.tunnel import Tunnel

HOSTS = {
    "spark-1.local": ANNA,
    "spark-2.local": {**ANNA, "gateway": {"bind": "0.0.0.0", "tls": "own"}},
}
KEY = "lk-secret"


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    (tmp_path / "anna.key").write_text(f"{KEY}\n")
    return write_inventory(tmp_path, HOSTS)


def run(inventory: Path, program: str, *words: str) -> Result:
    return CliRunner().invoke(main, ["client", program, "-i", str(inventory), *words])


def test_no_key_is_printed_and_who_reads_no_file_is_told_the_line(inventory: Path) -> None:
    key = inventory.parent / "anna.key"
    results = {name: run(inventory, name, "--key-file", str(key)) for name in PROGRAMS}
    for result in results.values():
        assert result.exit_code == 0, result.output
        assert KEY not in result.output and str(key) in result.output
    assert f'First: export OPENAI_API_KEY="$(cat {key})"' in results["aider"].stderr
    assert results["aider"].stdout.startswith("# ~/.aider.conf.yml\nmodel: openai/auto\n")
    assert "\n# ~/.aider.model.metadata.json\n{\n" in results["aider"].stdout


def test_standard_output_is_the_file_alone(inventory: Path) -> None:
    result = run(inventory, "opencode", "--model", "qwen")
    assert json.loads(result.stdout)["model"] == "lockstep/qwen"
    assert result.stderr.splitlines() == [
        "First, and as long as you work: ssh spark-1.local -N -L 8090:127.0.0.1:8090",
        "LOCKSTEP_KEY: any text; this listener needs no key.",
        "It goes to ~/.config/opencode/opencode.json.",
    ]
    # A host that is open needs a key and its authority.
    result = run(inventory, "codex", "--host", "spark-2.local")
    base = tomllib.loads(result.stdout)["model_providers"]["lockstep"]["base_url"]
    assert base == "https://spark-2.local:8443/v1"
    assert result.stderr.splitlines()[:2] == [
        "LOCKSTEP_KEY must hold your key.",
        "CODEX_CA_CERTIFICATE must name a file with https://spark-2.local:8443/root.crt.",
    ]


def test_a_model_or_a_key_that_is_not_there_is_wrong_use(inventory: Path) -> None:
    for words, message in (
        (("--model", "gpt-5"), "no such model; found gpt-5; allowed: auto, qwen, mistral"),
        (("--key-file", "/nowhere"), "'/nowhere' does not exist"),
    ):
        result = run(inventory, "claude", *words)
        assert result.exit_code == 2
        assert message in " ".join(result.output.split())
    # A member of a cluster that does not answer offers nothing.
    write_inventory(inventory.parent, PAIR)
    assert json.loads(run(inventory, "claude", "--host", "spark-1.local").stdout)
    result = run(inventory, "claude", "--host", "spark-2.local")
    assert result.exit_code == 2
    assert "no such model; found auto; allowed: none answers" in " ".join(result.output.split())


OUTCOMES: dict[str, Any] = {
    "opencode": {"outcome": "evened", "evened_shapes": ("same_role",)},
    "Roo Code": {"outcome": "refused", "why": "400: no tools"},
    "LiteLLM": {"outcome": "unknown", "why": "429: busy"},
}


def test_a_check_says_what_works_and_ends_so(inventory: Path, monkeypatch) -> None:
    """The questions themselves: tests/unit/clients/test_check.py."""

    @contextlib.contextmanager
    def tunnel(where: Login, urls: Sequence[str]) -> Iterator[Tunnel]:
        assert where.name == "spark-2.local"
        yield Tunnel(where, tuple(urls))

    def ask_all(gateway: GatewayAddress, shapes: Sequence[Shape], *, pictures: bool) -> Any:
        assert gateway == GatewayAddress("http://127.0.0.1:8090", KEY)
        for shape in shapes:
            about = (shape.program, shape.version, shape.shape, shape.source, "2026-11-28")
            yield ClientResult(*about, **OUTCOMES.get(shape.program, {"outcome": "works"}))

    monkeypatch.setattr(module, "tunnel", tunnel)
    monkeypatch.setattr(module, "ask_all", ask_all)
    monkeypatch.setattr(GatewayAddress, "hot", lambda _: "mistral")
    words = ("--host", "spark-2.local", "--key-file", str(inventory.parent / "anna.key"))
    for name, code, message in (
        ("opencode", 0, "works, evened out: same_role mistral on spark-2.local: 1 work evened out"),
        ("roocode", 1, "refused: 400: no tools mistral on"),
        ("LiteLLM", 2, "could not tell: 429: busy mistral on"),
        ("emacs", 2, "no such program; found emacs; allowed: Open WebUI, Claude Code, Codex"),
    ):
        result = run(inventory, "check", name, *words)
        assert result.exit_code == code, result.output
        assert message in " ".join(result.output.split())
    result = run(inventory, "check", "--json", *words)
    assert result.exit_code == 2
    document = json.loads(result.stdout)
    assert (document["host"], document["model"]) == ("spark-2.local", "mistral")
    outcomes = {row["program"]: row["outcome"] for row in document["shapes"]}
    assert (outcomes["opencode"], outcomes["Roo Code"]) == ("evened", "refused")
