"""`lockstep blackbox`: who is asked, what is shown, and what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from an_inventory import written
from click.testing import Result
from over_ssh import invoked

TWO = ({"monitoring": {"enabled": True}},) * 2
ALONE = ({"monitoring": {"enabled": False}},)
ANSWER = {
    "now": 100.0,
    "end": 90.0,
    "alive": False,
    "booted": 10.0,
    "boot": None,
    "last_words": {},
    "series": [{"name": "node_load1", "labels": {}, "values": [[89.0, 1.5], [90.0, 2.5]]}],
    "said": [[88.0, "netconsole-spark-1.local", "3,1,2,-;NVRM: Xid"]],
}


def run(folder: Path, hosts: Any, answer: dict[str, Any] | str, *words: str) -> Result:
    """With an ssh that answers so; what it was asked is in the file "asked"."""
    every = {
        f"spark-{n}.local": {"ssh_user": "anna", "fabric_address": f"10.0.0.{n}", **data}
        for n, data in enumerate(hosts, start=1)
    }
    inventory = written(folder, every)
    said = (
        answer
        if isinstance(answer, str)
        else json.dumps({"answers": {"blackbox": answer}, "facts": {}, "faults": {}})
    )
    (folder / "answer").write_text(said)
    body = f'echo "$*" > {folder}/asked\ncat >> {folder}/asked\ncat {folder}/answer'
    return invoked(folder, body, "blackbox", "-i", str(inventory), "spark-1.local", *words)


def question(folder: Path) -> dict[str, Any]:
    text = (folder / "asked").read_text()
    found: dict[str, Any] = json.loads(text.strip().rpartition("\n")[2])["asked"]["blackbox"]
    return found


def test_the_recorder_is_asked(tmp_path: Path) -> None:
    done = run(tmp_path, TWO, ANSWER, "--before-boot", "--minutes", "3")
    assert done.exit_code == 0, done.output
    assert "spark-2.local" in (tmp_path / "asked").read_text().splitlines()[0]
    asked = question(tmp_path)
    assert (asked["host"], asked["minutes"], asked["before_boot"]) == ("spark-1.local", 3, True)
    assert (asked["job"], asked["url"]) == ("twin", "http://127.0.0.1:9090")
    assert asked["identifier"] == "netconsole-spark-1.local"
    assert "spark-1.local, recorded by spark-2.local: last seen" in done.output
    assert "00:01:28  kernel: err: NVRM: Xid" in done.output


def test_one_alone_is_asked_itself(tmp_path: Path) -> None:
    done = run(tmp_path, ALONE, {**ANSWER, "series": [], "said": []})
    assert done.exit_code == 0, done.output
    asked = question(tmp_path)
    assert (asked["url"], asked["identifier"]) == (None, None)
    assert "is recorded by no other Spark" in done.output


def test_the_same_for_programs_and_as_a_page(tmp_path: Path) -> None:
    done = run(tmp_path, TWO, ANSWER, "--json", "--html", str(tmp_path / "page.html"))
    found = json.loads(done.output)
    assert found["figures"]["load"] == [[89.0, 1.5], [90.0, 2.5]]
    assert found["events"] == [{"at": 88.0, "kind": "kernel", "words": "err: NVRM: Xid"}]
    assert "<h1>The last minutes of spark-1.local</h1>" in (tmp_path / "page.html").read_text()


def test_a_page_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    done = run(tmp_path, TWO, ANSWER, "--html", str(tmp_path / "no/page.html"))
    said = "no/page.html: the page cannot be written; found No such file or directory."
    assert done.exit_code == 2 and said in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("hosts", "said", "remedy"),
    [
        (TWO, "spark-2.local, which records spark-1.local, tells nothing", "lockstep-prometheus"),
        (ALONE, "spark-1.local tells nothing", "ask with --before-boot"),
    ],
)
def test_where_nothing_is_known_the_host_and_a_remedy_are_named(
    tmp_path: Path, hosts: Any, said: str, remedy: str
) -> None:
    fault = {"answers": {}, "facts": {}, "faults": {"blackbox": "it does not answer"}}
    done = run(tmp_path, hosts, json.dumps(fault))
    assert (done.exit_code, done.stdout) == (2, "")
    text = " ".join(done.stderr.split())
    assert f"{said}: it does not answer" in text and remedy in text
