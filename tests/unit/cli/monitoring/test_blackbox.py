"""`lockstep blackbox`: who is asked, what is shown, and what is wrong."""

import json

import pytest
from an_inventory import write_inventory
from click.testing import CliRunner

from lockstep.cli.main import main
from lockstep.cli.monitoring import blackbox as module

ANSWER = {
    **{"now": 100.0, "end": 90.0, "alive": False, "booted": 10.0, "boot": None, "last_words": {}},
    "series": [{"name": "node_load1", "labels": {}, "values": [[89.0, 1.5], [90.0, 2.5]]}],
    "said": [[88.0, "netconsole-spark-1.local", "3,1,2,-;NVRM: Xid"]],
}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Gives the end of `lockstep blackbox spark-1.local WORDS`, who was asked, and what."""

    def run(hosts: int, answer, *words):
        asked_hosts = {}

        def read(login, _, question, **__):
            asked_hosts[login.name] = question
            return answer, "" if answer else "it does not answer"

        monkeypatch.setattr(module, "read", read)
        monitoring = {"monitoring": {"enabled": hosts > 1}}
        every = {
            f"spark-{n}.local": {"fabric_address": f"10.0.0.{n}", **monitoring}
            for n in range(1, hosts + 1)
        }
        inventory = str(write_inventory(tmp_path, every))
        result = CliRunner().invoke(main, ["blackbox", "-i", inventory, "spark-1.local", *words])
        return result, *asked_hosts.popitem()

    return run


def test_the_recorder_is_asked_and_one_alone_itself(run) -> None:
    result, host, question = run(2, ANSWER, "--before-boot", "--minutes", "3")
    assert (result.exit_code, host) == (0, "spark-2.local"), result.output
    expected_items = {"host": "spark-1.local", "minutes": 3, "before_boot": True, "job": "peer"}
    expected_items |= {"url": "http://127.0.0.1:9090", "identifier": "netconsole-spark-1.local"}
    assert expected_items.items() <= question.items()
    assert "spark-1.local, recorded by spark-2.local: last seen" in result.output
    assert "00:01:28  kernel: err: NVRM: Xid" in result.output
    document = json.loads(run(2, ANSWER, "--json")[0].output)
    assert document["figures"]["load"] == [[89.0, 1.5], [90.0, 2.5]]
    assert document["events"] == [{"at": 88.0, "kind": "kernel", "words": "err: NVRM: Xid"}]
    result, host, question = run(1, {**ANSWER, "series": [], "said": []})
    assert (result.exit_code, host) == (0, "spark-1.local"), result.output
    assert (question["url"], question["identifier"]) == (None, None)
    assert "is recorded by no other Spark" in result.output


def test_where_nothing_is_known_the_host_and_a_remedy_are_named(run) -> None:
    for hosts, message, remedy in (
        (2, "spark-2.local, which records spark-1.local, tells nothing", "lockstep-prometheus"),
        (1, "spark-1.local tells nothing", "ask with --before-boot"),
    ):
        result, *_ = run(hosts, None)
        assert (result.exit_code, result.stdout) == (2, "")
        text = " ".join(result.stderr.split())
        assert f"{message}: it does not answer" in text and remedy in text
