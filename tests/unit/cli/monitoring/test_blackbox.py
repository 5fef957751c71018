"""`lockstep blackbox`: who is asked, what is shown, and what is wrong."""

import json
from pathlib import Path
from typing import Any

from an_inventory import write_inventory
from click.testing import Result
from over_ssh import invoke_lockstep

TWO = [{"monitoring": {"enabled": True}}] * 2
ALONE = [{"monitoring": {"enabled": False}}]
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


def run(folder: Path, hosts: Any, answer: dict[str, Any] | None, *words: str) -> Result:
    """Run the command with an ssh that answers so or has a fault; "asked" has the question."""
    every = {
        f"spark-{n}.local": {"ssh_user": "anna", "fabric_address": f"10.0.0.{n}", **data}
        for n, data in enumerate(hosts, start=1)
    }
    inventory = write_inventory(folder, every)
    faults = {"blackbox": "it does not answer"} if answer is None else {}
    answers = {} if answer is None else {"blackbox": answer}
    document = {"answers": answers, "facts": {}, "faults": faults}
    (folder / "answer").write_text(json.dumps(document))
    body = f'echo "$*" > {folder}/asked\ncat >> {folder}/asked\ncat {folder}/answer'
    return invoke_lockstep(folder, body, "blackbox", "-i", str(inventory), "spark-1.local", *words)


def question(folder: Path) -> Any:
    text = (folder / "asked").read_text()
    return json.loads(text.strip().rpartition("\n")[2])["asked"]["blackbox"]


def test_the_recorder_is_asked_and_one_alone_itself(tmp_path: Path) -> None:
    result = run(tmp_path, TWO, ANSWER, "--before-boot", "--minutes", "3")
    assert result.exit_code == 0, result.output
    assert "spark-2.local" in (tmp_path / "asked").read_text().splitlines()[0]
    expected_items = {"host": "spark-1.local", "minutes": 3, "before_boot": True, "job": "peer"}
    expected_items |= {"url": "http://127.0.0.1:9090", "identifier": "netconsole-spark-1.local"}
    assert expected_items.items() <= question(tmp_path).items()
    assert "spark-1.local, recorded by spark-2.local: last seen" in result.output
    assert "00:01:28  kernel: err: NVRM: Xid" in result.output
    document = json.loads(run(tmp_path, TWO, ANSWER, "--json").output)
    assert document["figures"]["load"] == [[89.0, 1.5], [90.0, 2.5]]
    assert document["events"] == [{"at": 88.0, "kind": "kernel", "words": "err: NVRM: Xid"}]
    result = run(tmp_path, ALONE, {**ANSWER, "series": [], "said": []})
    assert result.exit_code == 0, result.output
    request = question(tmp_path)
    assert (request["url"], request["identifier"]) == (None, None)
    assert "is recorded by no other Spark" in result.output


def test_where_nothing_is_known_the_host_and_a_remedy_are_named(tmp_path: Path) -> None:
    for hosts, message, remedy in (
        (TWO, "spark-2.local, which records spark-1.local, tells nothing", "lockstep-prometheus"),
        (ALONE, "spark-1.local tells nothing", "ask with --before-boot"),
    ):
        result = run(tmp_path, hosts, None)
        assert (result.exit_code, result.stdout) == (2, "")
        text = " ".join(result.stderr.split())
        assert f"{message}: it does not answer" in text and remedy in text
