"""`lockstep recipe`: exit codes, JSON for programs, and what it adds."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from lockstep.cli.main import main
from lockstep.lock import lockfile
from lockstep.lock.pins import CheckpointPin, FilePin, Pins

CLEAN = """recipe_version: "2"
model: RedHatAI/gemma-4-26B-A4B-it-FP8-dynamic
command: vllm serve {model} --host 127.0.0.1 --gpu-memory-utilization 0.5
lockstep: {moe: true, licence: Apache-2.0}
"""


def run(*words: str, exit_code: int = 0) -> str:
    result = CliRunner().invoke(main, ["recipe", *words])
    assert result.exit_code == exit_code, result.output
    return result.output


def test_list_names_every_recipe() -> None:
    lines = run("list").splitlines()
    verdicts = {line.split()[0]: " ".join(line.split()[3:]) for line in lines[1:]}
    assert verdicts["qwen3.6-35b-a3b-prismaquant-dflash-k3"] == "fits"
    assert verdicts["qwen3.6-35b-a3b-prismaquant-dflash-k6"] == "known bad"
    assert verdicts["nemotron-3-super-120b-nvfp4"] == "licence refused"
    assert verdicts["glm-5.1-fp8"] == "does not fit"


def test_show_prints_a_command_one_can_copy_and_where_a_licence_was_read() -> None:
    output = run("show", "mistral-small-4-119b-nvfp4-sglang")
    assert "  sglang serve \\\n    --model-path mistralai/Mistral-Small-4-119B-2603-NVFP4" in output
    assert "95.4  must be available when it starts, for this context (94.4 to load at" in output
    output = " ".join(run("show", "qwen3.6-35b-a3b-autoround-dflash-k3-vision").split())
    assert "Apache-2.0 source: the base's, Qwen/Qwen3.6-35B-A3B" in output
    assert "draft z-lab/Qwen3.6-35B-A3B-DFlash, licence Apache-2.0" in output


def test_programs_are_given_the_same() -> None:
    rows = {row["name"]: row for row in json.loads(run("list", "--json"))}
    assert rows["glm-5.1-fp8"]["fit"]["hosts"] == 1
    for name in ("glm-5.1-ud-iq2-m", "deepseek-v4-flash-2x", "mistral-small-4-119b-nvfp4-sglang"):
        run("show", name)
        document = json.loads(run("show", name, "--json"))
    assert {"quantity", "value", "source", "date"} <= set(document["figures"][0])
    findings = json.loads(run("check", "glm-5.1-fp8", "--json", exit_code=1))
    assert [item["code"] for item in findings] == ["fit-none"]


def test_show_of_a_command_that_cannot_run_shows_the_rest_and_why(tmp_path: Path) -> None:
    path = tmp_path / "piped.yaml"
    path.write_text(CLEAN.replace("0.5", "0.5 | tee log") + "env: {A: b}\n")
    output = run("show", str(path))
    assert "licence    Apache-2.0" in output and "  A=b" in output
    assert "error cannot-run" in output and "needs a shell" in output
    assert json.loads(run("show", str(path), "--json"))["command"] == []


def test_check_ends_with_0_for_clean_1_for_findings_2_for_unreadable(tmp_path: Path) -> None:
    clean = tmp_path / "clean.yaml"
    clean.write_text(CLEAN)
    broken_path = tmp_path / "broken.yaml"
    broken_path.write_text("model: [")
    run("check", str(clean))
    run("check", "glm-5.1-fp8", exit_code=1)
    output = run("check", str(broken_path), str(clean), "glm-5.1-fp8", exit_code=2)
    assert "fit-none" in output and "not valid YAML" in " ".join(output.split())
    assert "lockstep recipe list" in run("show", "nothing", exit_code=2)


def test_add_copies_a_clean_recipe_and_refuses_a_bad_one(tmp_path: Path) -> None:
    good = tmp_path / "good.yaml"
    good.write_text(CLEAN)
    into = tmp_path / "recipes"
    run("add", str(good), "--into", str(into))
    assert (into / "good.yaml").read_text() == CLEAN
    run("add", str(good), "--into", str(into))
    good.write_text(CLEAN + "# changed\n")
    run("add", str(good), "--into", str(into), exit_code=2)
    target_path = tmp_path / "glm-5.1-fp8.yaml"
    target_path.write_text(CLEAN)
    run("add", str(target_path), "--into", str(into), exit_code=2)
    assert [path.name for path in into.iterdir()] == ["good.yaml"]
    bad = tmp_path / "bad.yaml"
    bad.write_text(CLEAN + "mods: [mods/x]\n")
    run("add", str(bad), "--into", str(into), exit_code=1)
    assert not (into / "bad.yaml").exists()


def test_show_says_what_a_lock_leaves_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inventory.py").touch()
    name = "qwen3.6-35b-a3b-fp8"
    assert "not locked here; see `lockstep model inspect" in run("show", name)
    pin = CheckpointPin("main", 40 * "c", (FilePin("a", 10**9),), left_out={"original/": 5 * 10**9})
    pins = Pins(checkpoints={"Qwen/Qwen3.6-35B-A3B-FP8": pin})
    lockfile.save(tmp_path / "inventory.lock.yaml", pins)
    assert "1.0 GB in 1 files\n           left out: original/ 5.0 GB" in run("show", name)
    document = json.loads(run("show", name, "--json"))
    assert document["left_out"] == {"Qwen/Qwen3.6-35B-A3B-FP8": {"original/": 5 * 10**9}}
