"""A diff is shown in 80 columns, with what to type; a page shows it to look at; nothing leaks."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from a_probe import take
from a_snapshot import copied, host, judged, perfect
from browser import faults_of_report
from click.testing import CliRunner
from rich.console import Console

from lockstep.cli import diff
from lockstep.cli.main import main
from lockstep.deploy.questions import EVER_OURS
from lockstep.drift import hosts, page, report, view
from lockstep.drift.report import Report
from lockstep.drift.subjects import KINDS, questions
from lockstep.files import sent
from lockstep.files.managed_file import CONFIGURATION
from lockstep.files.programs import closure
from lockstep.files.sent import named
from lockstep.fleet.login import Login
from lockstep.units.backup_unit import PASSWORD

ONE, TWO = host("spark1"), host("spark2")
SWITCH = "/data/scripts/llm/switch.sh"


def drifted() -> Report:
    """Two hosts with drift of every severity and remedy."""
    one, two = perfect(ONE), perfect(TWO)
    one["facts"]["file"][SWITCH] = 32 * "0"
    one["facts"]["drop-in"] = {
        "vllm.service /etc/systemd/system/vllm.service.d/a-name-that-is-long.conf": "present"
    }
    two["facts"]["kernel"]["reboot pending"] = "yes"
    one["facts"]["setting"] = {"/etc/docker/daemon.json": 32 * "1"}
    two["facts"]["setting"] = {"/etc/docker/daemon.json": 32 * "2"}
    one["facts"]["alternative"] = {"editor": "/usr/bin/vim"}
    two["facts"]["alternative"] = {"editor": "/bin/<nano>"}
    return judged((ONE, one), (TWO, two))


def printed(found: Report) -> str:
    """What the command prints."""
    console = Console(file=io.StringIO(), width=80, color_system=None, highlight=False)
    view.table(found, console, "lockstep diff --fix")
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def test_a_report_fits_80_columns_and_says_who_puts_what_right() -> None:
    assert printed(drifted()) == (Path(__file__).parent / "golden_drift.txt").read_text().rstrip()


def test_hosts_without_drift_take_one_line() -> None:
    found = judged((ONE, perfect(ONE)), (TWO, perfect(TWO)))
    assert printed(found) == ("No drift: 2 hosts as inventory and record ask and as each other.")


def test_drift_of_one_host_is_not_said_to_be_on_all() -> None:
    two = perfect(TWO)
    two["facts"]["kernel"]["reboot pending"] = "yes"
    assert "\n1 warning on 1 of 2 hosts.\n" in printed(judged((ONE, perfect(ONE)), (TWO, two)))


def test_a_host_that_cannot_be_reached_is_said_and_nothing_is_called_the_same() -> None:
    found = judged((ONE, perfect(ONE)), (TWO, None))
    assert printed(found) == (
        "spark2: could not tell: no connection: timed out\nCould not tell whether 2 hosts differ."
    )
    assert printed(judged((TWO, None))).endswith("\nCould not tell whether 1 host differs.")


def test_a_page_needs_nothing_else_and_escapes_what_hosts_say() -> None:
    text = page.render(drifted(), now=0.0)
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
    assert faults_of_report(page.render(drifted()), tmp_path) == []


def test_no_secret_is_in_a_snapshot(tmp_path: Path) -> None:
    secret = tmp_path / "open-webui.env"
    secret.write_text("WEBUI_SECRET_KEY=abc123secret\nWEBUI_ADMIN_PASSWORD=\n")
    token = tmp_path / "hub-token"
    token.write_text("hf_abc123secret")
    asked = questions(ONE, key=bytes(32), deep=False)
    asked["files.secrets"] |= {"secrets": [str(secret)], "entries": [str(secret)]}
    asked["files.secrets"]["token"] = str(token)
    asked["files.managed"]["files"] = [str(secret)]
    answer = taken(asked)
    assert "abc123secret" not in answer
    assert json.loads(answer)["facts"]["secret entry"] == {
        f"{secret} WEBUI_SECRET_KEY": "set",
        f"{secret} WEBUI_ADMIN_PASSWORD": "empty",
    }
    # Another run has another key, so that nothing can be tried out against a kept report.
    other = json.loads(taken({"files.secrets": asked["files.secrets"] | {"key": 64 * "1"}}))
    assert other["facts"]["hub token"] != json.loads(answer)["facts"]["hub token"]


def taken(asked: dict[str, Any]) -> str:
    """The snapshot of this machine, by the program as a host runs it."""
    # A password that sudo did not need is left before it.
    done = take("not needed\n" + sent.questions(asked))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_this_machine_can_be_read_and_what_it_lacks_is_told() -> None:
    found = json.loads(taken(questions(ONE, key=bytes(32), deep=True)))
    assert found["facts"]["kernel"]["release"]
    assert found["facts"]["sysctl"]["vm.swappiness"]
    assert found["facts"]["account"]["root"] == "uid 0"
    said = {"accounts.every", "machine.kernel", "files.settings", "files.managed"}
    assert not said & set(found["faults"])
    # Of every part that failed there are kinds that must not be compared.
    assert set(found["faults"]) <= {named(about.reader) for about in KINDS.values()}


def test_the_command_gives_json_a_page_and_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "diff", lambda *_, **__: drifted())
    out = tmp_path / "drift.html"
    done = CliRunner().invoke(main, ["diff", "--json", "--html", str(out)])
    found = json.loads(done.stdout)
    assert done.exit_code == 1
    assert found["differences"][0] == {
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
    assert found["differences"][-1]["values"] == {
        "spark1": "/usr/bin/vim",
        "spark2": "/bin/<nano>",
    }
    assert out.read_text().startswith("<!doctype html>")


def test_a_member_of_docker_may_stay_by_the_inventory() -> None:
    one = copied(perfect(ONE))
    one["facts"]["right"]["games in docker"] = "yes"
    one["facts"]["right"]["games in lockstep-operators"] = "yes"
    found = judged((ONE, one))
    assert "sudo gpasswd --delete games docker" in printed(found)
    for said in (printed(found), page.render(found)):
        assert "To keep games in docker: name it in `docker_users`, and deploy." in said
        assert "games in lockstep-operators: name it in `operators`" in said


def test_fix_deploys_to_nobody_for_what_only_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    two = copied(perfect(TWO))
    two["facts"]["setting"] = {"/etc/sudoers.d/mine": 32 * "1"}
    two["facts"]["service"] = {"mine.service for multi-user.target.wants": "on"}
    found = judged((ONE, perfect(ONE)), (TWO, two))
    monkeypatch.setattr(report, "diff", lambda *_, **__: found)
    monkeypatch.setattr(diff, "carry_out", None)
    done = CliRunner().invoke(main, ["diff", "--fix"])
    assert done.exit_code == 1 and "2 differ on 2 hosts." in done.stdout
    assert "By hand" not in done.stdout and "sudo " not in done.stdout
    assert "spark1  nothing" in done.stdout and "spark2  content 1" in done.stdout


def test_fix_deploys_to_hosts_that_it_helps_and_shows_what_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    second = judged((ONE, perfect(ONE)), (TWO, copied(perfect(TWO))))
    reports = [drifted(), second]
    ran: list[tuple[list[str], dict[str, Any]]] = []

    def carry_out(inventory: Path, limit: list[str], **asked: Any) -> int:
        ran.append((limit, asked))
        print("what the deploy says")
        return 0

    monkeypatch.setattr(report, "diff", lambda *_, **__: reports.pop(0))
    monkeypatch.setattr(diff, "carry_out", carry_out)
    done = CliRunner().invoke(main, ["diff", "--fix"])
    # Whether it asks is the deploy's, as for `lockstep deploy`.
    assert ran == [(["spark1"], {"yes": False, "what": "diff --fix"})]
    assert done.exit_code == 0 and "No drift" in done.stdout

    reports = [drifted(), second]
    done = CliRunner().invoke(main, ["diff", "--fix", "--yes", "--json"])
    assert ran[1:] == [(["spark1"], {"yes": True, "what": "diff --fix"})]
    assert json.loads(done.stdout)["code"] == 0 and "what the deploy says" in done.stderr


def test_a_folder_of_a_stranger_is_named_once_and_ours_are_looked_into(tmp_path: Path) -> None:
    own = tmp_path / "lockstep"
    for name in ("gate.py", "mine.py", "old/bin/python", "old/lib/site.py", "venvs/tools/x.py"):
        (own / name).parent.mkdir(parents=True, exist_ok=True)
        (own / name).touch()
    asked = questions(ONE, key=bytes(32), deep=False)["files.leftovers"]
    asked |= {"own": [str(own)], "files": [str(own / "gate.py")]}
    asked["inside"] = [str(own / "venvs/tools")]
    found = json.loads(taken({"files.leftovers": asked}))["facts"]["foreign file"]
    assert sorted(found) == [str(own / "mine.py"), str(own / "old")]


def test_a_removal_knows_every_file_that_diff_knows_in_our_folders() -> None:
    known = [pattern.replace("/**/", "/*") for pattern in EVER_OURS]
    for one in (ONE, TWO):
        asked = questions(one, key=bytes(32), deep=False)["files.leftovers"]
        there = [
            path
            for path in (*asked["files"], *asked["allowed"])
            if path.startswith(tuple(f"{folder}/" for folder in asked["own"]))
            and path != f"{CONFIGURATION}/"
        ]
        assert len(there) > 50
        # It is made by the first backup, and stays where the inventory has none any more.
        assert PASSWORD in asked["allowed"]
        assert [path for path in there if not any(fnmatch(path, each) for each in known)] == []


def test_a_host_is_left_what_concerns_it_and_its_page_gets_no_more_than_it_shows() -> None:
    one, two = perfect(ONE), perfect(TWO)
    one["facts"]["file"][SWITCH] = 32 * "0"
    two["facts"]["failed unit"] = {f"a{number}.service": "failed" for number in range(50)}
    two["faults"] = {"packages.every": "dpkg-query ended with 2: locked"}
    found = judged((ONE, one), (TWO, two))
    assert report.of_host(found, "spark1") == {
        "differences": [{"severity": "error", "kind": "file", "item": SWITCH, "how": "deploy"}],
        "more": 0,
        "unknown": [],
    }
    left = report.of_host(found, "spark2")
    assert (len(left["differences"]), left["more"]) == (40, 10)
    assert left["unknown"] == ["packages: dpkg-query ended with 2: locked"]


def test_what_is_left_is_sent_with_what_keeps_it(tmp_path: Path) -> None:
    document = sent.document("records.last_diff", {"differences": []})
    # The root of this machine is not to be written to.
    package = {
        path: text.replace('root: Path = Path("/")', f"root: Path = Path({str(tmp_path)!r})")
        for path, text in closure("records.last_diff").items()
    }
    document = json.dumps(json.loads(document) | sent.packed(package))
    argv = [sys.executable, *sent.COMMAND[1:]]
    done = subprocess.run(argv, input=document, capture_output=True, text=True, check=True)
    assert done.stdout == "{}"
    left = json.loads((tmp_path / "var/log/lockstep/diff.json").read_text())
    assert left["differences"] == [] and left["at"]


def test_only_hosts_that_answered_are_left_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[str] = []
    logins = [hosts.Asked(Login(name, ()), {}) for name in ("spark1", "spark2")]
    monkeypatch.setattr(report, "read", lambda *_, **__: ([ONE, TWO], logins))
    snapshot = {"facts": {}, "faults": {}, "answers": {}}
    taken = [hosts.Taken("spark1", snapshot), hosts.Taken("spark2", fault="no connection")]
    monkeypatch.setattr(hosts, "take_all", lambda _: taken)
    monkeypatch.setattr(hosts, "leave", lambda asked, _: left.append(asked.login.name))
    assert report.diff(Path("test.py")).code == report.UNKNOWN
    assert left == ["spark1"]
