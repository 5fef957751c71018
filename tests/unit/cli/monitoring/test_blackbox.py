"""`lockstep blackbox`: who is asked, what is shown, and what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from an_inventory import write_inventory
from click.testing import Result
from over_ssh import invoke_lockstep

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
    """Run the command with an ssh that answers so; the file "asked" has the question to it."""
    every = {
        f"spark-{n}.local": {"ssh_user": "anna", "fabric_address": f"10.0.0.{n}", **data}
        for n, data in enumerate(hosts, start=1)
    }
    inventory = write_inventory(folder, every)
    output = (
        answer
        if isinstance(answer, str)
        else json.dumps({"answers": {"blackbox": answer}, "facts": {}, "faults": {}})
    )
    (folder / "answer").write_text(output)
    body = f'echo "$*" > {folder}/asked\ncat >> {folder}/asked\ncat {folder}/answer'
    return invoke_lockstep(folder, body, "blackbox", "-i", str(inventory), "spark-1.local", *words)


def question(folder: Path) -> dict[str, Any]:
    text = (folder / "asked").read_text()
    document: dict[str, Any] = json.loads(text.strip().rpartition("\n")[2])["asked"]["blackbox"]
    return document


def test_the_recorder_is_asked(tmp_path: Path) -> None:
    result = run(tmp_path, TWO, ANSWER, "--before-boot", "--minutes", "3")
    assert result.exit_code == 0, result.output
    assert "spark-2.local" in (tmp_path / "asked").read_text().splitlines()[0]
    request = question(tmp_path)
    assert (request["host"], request["minutes"], request["before_boot"]) == (
        "spark-1.local",
        3,
        True,
    )
    assert (request["job"], request["url"]) == ("peer", "http://127.0.0.1:9090")
    assert request["identifier"] == "netconsole-spark-1.local"
    assert "spark-1.local, recorded by spark-2.local: last seen" in result.output
    assert "00:01:28  kernel: err: NVRM: Xid" in result.output


def test_one_alone_is_asked_itself(tmp_path: Path) -> None:
    result = run(tmp_path, ALONE, {**ANSWER, "series": [], "said": []})
    assert result.exit_code == 0, result.output
    request = question(tmp_path)
    assert (request["url"], request["identifier"]) == (None, None)
    assert "is recorded by no other Spark" in result.output


def test_the_same_for_programs(tmp_path: Path) -> None:
    result = run(tmp_path, TWO, ANSWER, "--json")
    document = json.loads(result.output)
    assert document["figures"]["load"] == [[89.0, 1.5], [90.0, 2.5]]
    assert document["events"] == [{"at": 88.0, "kind": "kernel", "words": "err: NVRM: Xid"}]


@pytest.mark.parametrize(
    ("hosts", "message", "remedy"),
    [
        (TWO, "spark-2.local, which records spark-1.local, tells nothing", "lockstep-prometheus"),
        (ALONE, "spark-1.local tells nothing", "ask with --before-boot"),
    ],
)
def test_where_nothing_is_known_the_host_and_a_remedy_are_named(
    tmp_path: Path, hosts: Any, message: str, remedy: str
) -> None:
    fault = {"answers": {}, "facts": {}, "faults": {"blackbox": "it does not answer"}}
    result = run(tmp_path, hosts, json.dumps(fault))
    assert (result.exit_code, result.stdout) == (2, "")
    text = " ".join(result.stderr.split())
    assert f"{message}: it does not answer" in text and remedy in text
