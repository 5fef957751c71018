"""A diff is shown in 80 columns, with what to type; a page shows it to look at; nothing leaks."""

import hashlib
import io
import json
import os
import shlex
import subprocess
from dataclasses import asdict
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from a_probe import program, snapshot_text
from a_snapshot import diff_report, host, perfect
from click.testing import CliRunner
from rich.console import Console

from lockstep.cli import diff
from lockstep.cli.main import main
from lockstep.drift import hosts, page, report, view
from lockstep.drift.report import Report
from lockstep.drift.subjects import KINDS, questions
from lockstep.files.managed_file import CONFIGURATION, WEBUI_SECRETS
from lockstep.files.remote_exec import reader_name
from lockstep.fleet.login import Login
from lockstep.onhost.facts import weights
from lockstep.onhost.weights import weights_spec
from lockstep.resources.fact_comparison import DriftRow
from lockstep.resources.files import EVER_OURS
from lockstep.units.backup_unit import PASSWORD

ONE, TWO = host("spark1"), host("spark2")
SWITCH = "/data/scripts/llm/switch.sh"


def drifted_report() -> Report:
    """Two hosts with drift of every severity and remedy."""
    first, two = perfect(ONE), perfect(TWO)
    first["facts"]["file"][SWITCH] = 32 * "0"
    first["facts"]["drop-in"] = {
        "vllm.service /etc/systemd/system/vllm.service.d/a-name-that-is-long.conf": "present"
    }
    two["facts"]["kernel"]["reboot pending"] = "yes"
    for snapshot, digit, editor in ((first, "1", "/usr/bin/vim"), (two, "2", "/bin/<nano>")):
        snapshot["facts"]["setting"] = {"/etc/docker/daemon.json": 32 * digit}
        snapshot["facts"]["alternative"] = {"editor": editor}
    return diff_report((ONE, first), (TWO, two))


def report_text(drift_report: Report) -> str:
    """The output of the command."""
    console = Console(file=io.StringIO(), width=80, color_system=None, highlight=False)
    view.table(drift_report, console, "lockstep diff --fix")
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def test_a_report_fits_80_columns_and_hosts_without_drift_or_answer_take_one_line() -> None:
    golden = (Path(__file__).parent / "golden_drift.txt").read_text()
    assert report_text(drifted_report()) == golden.rstrip()
    assert report_text(diff_report((ONE, perfect(ONE)), (TWO, perfect(TWO)))) == (
        "No drift: 2 hosts as inventory and record ask and as each other."
    )
    unknown_report = diff_report((ONE, perfect(ONE)), (TWO, None))
    assert report_text(unknown_report) == (
        "spark2: could not tell: no connection: timed out\nCould not tell whether 2 hosts differ."
    )
    assert unknown_report.code == report.UNKNOWN


def test_a_page_needs_nothing_else_and_escapes_what_hosts_say() -> None:
    text = page.render(drifted_report(), now=0.0)
    assert "1970-01-01 00:00 UTC" in text
    assert "/bin/&lt;nano&gt;" in text and "<nano>" not in text
    assert not {"http://", "https://", "src=", "@import"} & set(text.split()) and "url(" not in text
    # Both hosts are named with what they show.
    assert "<td>spark1, spark2</td>" in text and "spark1: /usr/bin/vim" in text


def test_this_machine_can_be_read_and_no_secret_is_in_its_snapshot(tmp_path: Path) -> None:
    secret = tmp_path / "open-webui.env"
    secret.write_text("WEBUI_SECRET_KEY=abc123secret\nWEBUI_ADMIN_PASSWORD=\n")
    token = tmp_path / "hub-token"
    token.write_text("hf_abc123secret")
    request = questions(ONE, key=bytes(32), deep=True)
    request["files.secrets"] |= {"entries": [str(secret)], "token": str(token)}
    request["files"]["paths"] = [str(secret)]
    answer = snapshot_text(request)
    assert "abc123secret" not in answer
    facts, faults = (json.loads(answer)[part] for part in ("facts", "faults"))
    names = {f"{secret} WEBUI_SECRET_KEY": "set", f"{secret} WEBUI_ADMIN_PASSWORD": "empty"}
    assert facts["secret entry"] == names
    assert facts["kernel"]["release"] and facts["sysctl"]["vm.swappiness"]
    assert facts["account"]["root"] == "uid 0"
    assert not {"accounts", "machine.kernel", "files.foreign_setting_files", "files"} & {*faults}
    # Of every part that failed there are kinds that must not be compared.
    assert {*faults} <= {reader_name(about.reader) for about in KINDS.values()}
    # Another run has another key, so that nothing can be tried out against a kept report.
    question = request["files.secrets"] | {"key": 64 * "1"}
    later_snapshot = json.loads(snapshot_text({"files.secrets": question}))
    assert later_snapshot["facts"]["hub token"] != facts["hub token"]


def test_the_command_gives_json_and_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "diff", lambda *_, **__: drifted_report())
    out = tmp_path / "drift.html"
    result = CliRunner().invoke(main, ["diff", "--json", "--html", str(out)])
    first, *_, last = json.loads(result.stdout)["differences"]
    remedy = (first["severity"], first["how"], first["command"][:10])
    assert (result.exit_code, *remedy) == (1, "error", "by hand", "sudo sh -c")
    assert last["values"] == {"spark1": "/usr/bin/vim", "spark2": "/bin/<nano>"}
    assert out.read_text().startswith("<!doctype html>")


def test_fix_deploys_to_hosts_that_it_helps_and_shows_more(monkeypatch: pytest.MonkeyPatch) -> None:
    two = perfect(TWO)
    none_left = diff_report((ONE, perfect(ONE)), (TWO, perfect(TWO)))
    two["facts"]["setting"] = {"/etc/sudoers.d/mine": 32 * "1"}
    only_differing = diff_report((ONE, perfect(ONE)), (TWO, two))
    reports = [drifted_report(), none_left, drifted_report(), none_left, only_differing]
    deploys: list[tuple[list[str], dict[str, Any]]] = []

    def carry_out(inventory: Path, limit: list[str], **options: Any) -> int:
        deploys.append((limit, options))
        print("what the deploy says")
        return 0

    monkeypatch.setattr(report, "diff", lambda *_, **__: reports.pop(0))
    monkeypatch.setattr(diff, "carry_out", carry_out)
    result = CliRunner().invoke(main, ["diff", "--fix"])
    assert result.exit_code == 0 and "No drift" in result.stdout
    result = CliRunner().invoke(main, ["diff", "--fix", "--yes", "--json"])
    assert json.loads(result.stdout)["code"] == 0 and "what the deploy says" in result.stderr
    # Nobody is deployed to for what only differs.
    result = CliRunner().invoke(main, ["diff", "--fix"])
    assert result.exit_code == 1 and "spark2  content 1" in result.stdout
    assert "By hand" not in result.stdout and "sudo " not in result.stdout
    # Whether it asks is the deploy's, as for `lockstep deploy`.
    options = [{"yes": is_agreed, "command": "diff --fix"} for is_agreed in (False, True)]
    assert deploys == [(["spark1"], option) for option in options]


def test_a_folder_of_a_stranger_is_named_once_and_ours_are_looked_into(tmp_path: Path) -> None:
    own = tmp_path / "lockstep"
    for name in ("gate.py", "mine.py", "old/bin/python", "old/lib/site.py", "venvs/tools/x.py"):
        (own / name).parent.mkdir(parents=True, exist_ok=True)
        (own / name).touch()
    question = questions(ONE, key=bytes(32), deep=False)["files.leftovers"]
    question |= {"own": [str(own)], "files": [str(own / "gate.py")]}
    question["inside"] = [str(own / "venvs/tools")]
    leftovers = json.loads(snapshot_text({"files.leftovers": question}))["facts"]["foreign file"]
    assert sorted(leftovers) == [str(own / "mine.py"), str(own / "old")]


def unmatched_paths(paths: list[str], patterns: list[str]) -> list[str]:
    return [path for path in paths if not any(fnmatch(path, pattern) for pattern in patterns)]


def test_a_removal_and_another_inventory_know_every_file_in_our_folders() -> None:
    models = {"qwen": asdict(ONE.plan.settings.models["qwen"])}
    lean = host("spark1", models=models, webui={"enabled": False})
    earlier, question = (
        questions(desired_state, key=bytes(32), deep=False)["files.leftovers"]
        for desired_state in (ONE, lean)
    )
    known_patterns = [pattern.replace("/**/", "/*") for pattern in EVER_OURS]
    folders = tuple(f"{folder}/" for folder in earlier["own"])
    paths = [path for path in (*earlier["files"], *earlier["allowed"]) if path not in folders]
    paths = [path for path in paths if path.startswith(folders)]
    assert len(paths) > 50 and unmatched_paths(paths, known_patterns) == []
    # It is made by the first backup, and stays where the inventory has none any more.
    assert PASSWORD in earlier["allowed"]
    # Without a model in an environment, and without Open WebUI, their files are leftovers or stay.
    unwanted_paths = {*earlier["files"]} - {*question["files"], *question["allowed"]}
    own_paths = [path for path in unwanted_paths if path.startswith(tuple(question["own"]))]
    assert unmatched_paths(own_paths, question["named"]) == []
    assert f"{CONFIGURATION}/engine.json" in unwanted_paths
    assert WEBUI_SECRETS in question["allowed"] and WEBUI_SECRETS not in question["files"]


def test_a_host_that_answered_is_left_what_concerns_it_and_no_more_than_its_page_shows(monkeypatch):
    first, two = perfect(ONE), perfect(TWO)
    first["facts"]["file"][SWITCH] = 32 * "0"
    two["facts"]["failed unit"] = {f"a{number}.service": "failed" for number in range(50)}
    two["faults"] = {"packages": "dpkg-query ended with 2: locked"}
    drift_report = diff_report((ONE, first), (TWO, two))
    difference = {"severity": "error", "kind": "file", "item": SWITCH, "how": "deploy"}
    expected_report = {"differences": [difference], "more": 0, "unknown": []}
    assert report.of_host(drift_report, "spark1") == expected_report
    host_report = report.of_host(drift_report, "spark2")
    assert (len(host_report["differences"]), host_report["more"]) == (40, 10)
    assert host_report["unknown"] == ["packages: dpkg-query ended with 2: locked"]
    names: list[str] = []
    logins = [hosts.HostQuestion(Login(name, ()), {}) for name in ("spark1", "spark2")]
    monkeypatch.setattr(report, "read", lambda *_, **__: ([ONE, TWO], logins))
    answer = hosts.HostSnapshot("spark1", {"facts": {}, "faults": {}, "answers": {}})
    silence = hosts.HostSnapshot("spark2", fault="no connection")
    monkeypatch.setattr(hosts, "take_all", lambda _: [answer, silence])
    monkeypatch.setattr(hosts, "leave", lambda question, _: names.append(question.login.name))
    assert report.diff(Path("test.py")).code == report.UNKNOWN
    assert names == ["spark1"]


def test_a_rotten_weight_is_forgotten_where_the_cache_of_this_host_is(tmp_path: Path) -> None:
    file = {"path": "a/model.safetensors", "size": 3, "sha256": hashlib.sha256(b"abc").hexdigest()}
    revision = 40 * "c"
    repository = {"model": "org/name", "revision": revision, "files": [file]}
    cache = str(tmp_path / "hub")
    question = {"cache_dir": cache, "endpoint": "", "repositories": [repository]}
    spec = weights_spec.parse_spec(json.dumps(question))
    (spec_repository,) = spec.repositories
    path = spec.snapshot_folder(spec_repository.model, revision) / "a/model.safetensors"
    other_stamp = spec.stamps_folder / f"org--other@{revision}.json"
    for written_path in (path, spec.stamp_path(spec_repository), other_stamp):
        written_path.parent.mkdir(parents=True, exist_ok=True)
        written_path.write_text("xyz")
    facts = list(weights.every({"weights": question, "deep": True}))
    contents = [fact[1:] for fact in facts if "content" in fact[0]]
    assert contents == [(str(path), "other content")]
    command = KINDS["weights content"].mending_command(DriftRow(str(path), found="x"))
    subprocess.run(command, check=True)
    assert list(spec.stamps_folder.iterdir()) == [other_stamp]


def test_a_unit_from_elsewhere_is_removed_only_where_no_package_has_it() -> None:
    command, path = KINDS["unit path"].mending_command, "/run/systemd/system/a.service"
    assert command(DriftRow("a.service", "/etc/x", path)) == ("rm", path)
    packaged_path = "/usr/lib/systemd/system/a.service"
    assert command(DriftRow("a.service", "/etc/x", packaged_path))[:2] == ("systemctl", "cat")


def test_a_checkout_is_put_right_as_its_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = tmp_path / "the engine/vllm"
    source.mkdir(parents=True)
    program(tmp_path / "bin", "stat", 'printf "engines of %s" "$3"\n')
    program(tmp_path / "bin", "sudo", 'printf "%s\\n" "$@" > ' + shlex.quote(f"{tmp_path}/ran"))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    row = DriftRow(str(source), "clean", "1 changed")
    subprocess.run(KINDS["checkout"].mending_command(row), check=True)
    lines = (tmp_path / "ran").read_text().splitlines()
    assert lines[:5] == ["-u", f"engines of {source}", "git", "-C", str(source)]
    assert lines[-2:] == ["stash", "--include-untracked"]
