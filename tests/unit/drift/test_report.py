"""A diff is shown in 80 columns, with what to type; a page shows it to look at; nothing leaks."""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from a_probe import take
from a_snapshot import diff_report, host, perfect
from browser import faults_of_report
from click.testing import CliRunner
from rich.console import Console

from lockstep.cli import diff
from lockstep.cli.main import main
from lockstep.drift import hosts, page, report, view
from lockstep.drift.report import Report
from lockstep.drift.subjects import KINDS, questions
from lockstep.files import remote_exec
from lockstep.files.managed_file import CONFIGURATION, WEBUI_SECRETS
from lockstep.files.remote_exec import reader_name
from lockstep.fleet.login import Login
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
    text = report_text(diff_report((TWO, None)))
    assert text.endswith("\nCould not tell whether 1 host differs.")
    # Drift of one host is not said to be on all.
    two = perfect(TWO)
    two["facts"]["kernel"]["reboot pending"] = "yes"
    text = report_text(diff_report((ONE, perfect(ONE)), (TWO, two)))
    assert "\n1 warning on 1 of 2 hosts.\n" in text


def test_a_page_needs_nothing_else_and_escapes_what_hosts_say() -> None:
    text = page.render(drifted_report(), now=0.0)
    assert "1970-01-01 00:00 UTC" in text
    assert "/bin/&lt;nano&gt;" in text and "<nano>" not in text
    assert not {"http://", "https://", "src=", "@import"} & set(text.split()) and "url(" not in text
    assert text.count("<tr>") >= 5
    # Both hosts are named with what they show, and are counted alike.
    assert "<td>spark1, spark2</td>" in text and "spark1: /usr/bin/vim" in text
    assert text.count('<span class="differs">2 differ</span>') == 2
    assert "2 only differ, and nothing says which host is right" in text


@pytest.mark.slow
def test_a_page_can_be_read_on_a_phone_and_at_a_desk(tmp_path: Path) -> None:
    assert faults_of_report(page.render(drifted_report()), tmp_path) == []


def test_no_secret_is_in_a_snapshot(tmp_path: Path) -> None:
    secret = tmp_path / "open-webui.env"
    secret.write_text("WEBUI_SECRET_KEY=abc123secret\nWEBUI_ADMIN_PASSWORD=\n")
    token = tmp_path / "hub-token"
    token.write_text("hf_abc123secret")
    request = questions(ONE, key=bytes(32), deep=False)
    request["files.secrets"] |= {"entries": [str(secret)]}
    request["files.secrets"]["token"] = str(token)
    request["files"]["paths"] = [str(secret)]
    answer = snapshot_text(request)
    assert "abc123secret" not in answer
    names = {f"{secret} WEBUI_SECRET_KEY": "set", f"{secret} WEBUI_ADMIN_PASSWORD": "empty"}
    assert json.loads(answer)["facts"]["secret entry"] == names
    # Another run has another key, so that nothing can be tried out against a kept report.
    question = request["files.secrets"] | {"key": 64 * "1"}
    later_snapshot = json.loads(snapshot_text({"files.secrets": question}))
    assert later_snapshot["facts"]["hub token"] != json.loads(answer)["facts"]["hub token"]


def snapshot_text(request: dict[str, Any]) -> str:
    """The snapshot of this machine, by the program as a host runs it."""
    # A password that sudo did not need is left before it.
    result = take("not needed\n" + remote_exec.readers_input(request))
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_this_machine_can_be_read_and_what_it_lacks_is_told() -> None:
    snapshot = json.loads(snapshot_text(questions(ONE, key=bytes(32), deep=True)))
    assert snapshot["facts"]["kernel"]["release"]
    assert snapshot["facts"]["sysctl"]["vm.swappiness"]
    assert snapshot["facts"]["account"]["root"] == "uid 0"
    readers = {"accounts", "machine.kernel", "files.foreign_setting_files", "files"}
    assert not readers & set(snapshot["faults"])
    # Of every part that failed there are kinds that must not be compared.
    assert set(snapshot["faults"]) <= {reader_name(about.reader) for about in KINDS.values()}


def test_the_command_gives_json_and_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "diff", lambda *_, **__: drifted_report())
    out = tmp_path / "drift.html"
    result = CliRunner().invoke(main, ["diff", "--json", "--html", str(out)])
    document = json.loads(result.stdout)
    assert result.exit_code == 1
    assert document["differences"][0] == {
        "host": "spark1",
        "kind": "drop-in",
        "item": "vllm.service /etc/systemd/system/vllm.service.d/a-name-that-is-long.conf",
        "expected": None,
        "found": "present",
        "severity": "error",
        "how": "by hand",
        "command": (
            "sudo sh -c 'rm \"$0\" && systemctl daemon-reload' "
            "/etc/systemd/system/vllm.service.d/a-name-that-is-long.conf"
        ),
        "values": {},
    }
    values = {"spark1": "/usr/bin/vim", "spark2": "/bin/<nano>"}
    assert document["differences"][-1]["values"] == values
    assert out.read_text().startswith("<!doctype html>")


def test_a_member_of_docker_may_stay_by_the_inventory() -> None:
    snapshot = perfect(ONE)
    snapshot["facts"]["right"] |= {
        f"games in {group}": "yes" for group in ("docker", "lockstep-operators")
    }
    drift_report = diff_report((ONE, snapshot))
    assert "sudo gpasswd --delete games docker" in report_text(drift_report)
    for output in (report_text(drift_report), page.render(drift_report)):
        assert "To keep games in docker: name it in `docker_users`, and deploy." in output
        assert "games in lockstep-operators: name it in `operators`" in output


def test_fix_deploys_to_hosts_that_it_helps_and_shows_more(monkeypatch: pytest.MonkeyPatch) -> None:
    good = perfect(TWO)
    facts = {
        **{"setting": {"/etc/sudoers.d/mine": 32 * "1"}},
        **{"service": {"mine.service for multi-user.target.wants": "on"}},
    }
    differing_snapshot = {**good, "facts": {**good["facts"], **facts}}
    none_left, only_differing = (
        diff_report((ONE, perfect(ONE)), (TWO, snapshot)) for snapshot in (good, differing_snapshot)
    )
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
    assert result.exit_code == 1 and "2 differ on 2 hosts." in result.stdout
    assert "By hand" not in result.stdout and "sudo " not in result.stdout
    assert "spark1  nothing" in result.stdout and "spark2  content 1" in result.stdout
    # Whether it asks is the deploy's, as for `lockstep deploy`.
    assert deploys == [
        (["spark1"], {"yes": is_agreed, "command": "diff --fix"}) for is_agreed in (False, True)
    ]


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
    known_patterns = [pattern.replace("/**/", "/*") for pattern in EVER_OURS]
    for desired_state in (ONE, TWO):
        question = questions(desired_state, key=bytes(32), deep=False)["files.leftovers"]
        folders = tuple(f"{folder}/" for folder in question["own"])
        paths = [path for path in (*question["files"], *question["allowed"]) if path not in folders]
        paths = [path for path in paths if path.startswith(folders)]
        assert len(paths) > 50
        # It is made by the first backup, and stays where the inventory has none any more.
        assert PASSWORD in question["allowed"]
        assert unmatched_paths(paths, known_patterns) == []
    # Without a model in an environment, and without Open WebUI, their files are leftovers or stay.
    models = {"qwen": asdict(ONE.plan.settings.models["qwen"])}
    lean = host("spark1", models=models, webui={"enabled": False})
    question, earlier = (
        questions(desired_state, key=bytes(32), deep=False)["files.leftovers"]
        for desired_state in (lean, ONE)
    )
    unwanted_paths = {*earlier["files"]} - {*question["files"], *question["allowed"]}
    own_paths = [path for path in unwanted_paths if path.startswith(tuple(question["own"]))]
    assert unmatched_paths(own_paths, question["named"]) == []
    assert f"{CONFIGURATION}/engine.json" in unwanted_paths
    assert WEBUI_SECRETS in question["allowed"] and WEBUI_SECRETS not in question["files"]


def test_a_host_that_answered_is_left_what_concerns_it_and_no_more_than_its_page_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
