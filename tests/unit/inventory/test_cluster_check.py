"""`lockstep cluster check`: what is asked of the fast link, and what the answers mean."""

import copy
from pathlib import Path
from typing import Any

import pytest
from a_probe import ask, program
from a_spark import PORTS, of_pair, spark
from an_inventory import write_inventory
from click.testing import CliRunner
from onhost_fakes import FakeSystemd

from lockstep.cli.cluster import check as cluster_check
from lockstep.cli.main import main
from lockstep.fleet.linkcheck import LinkReport, judge_links, question
from lockstep.inventory.cluster_join import join_clusters

NAMES = ("spark-1", "spark-2")
#: A pair over both interfaces of a port.
DATA = {
    name: of_pair(
        number, fabric={"interfaces": {p: f"10.77.{i}.{number}/24" for i, p in enumerate(PORTS)}}
    )
    for number, name in enumerate(NAMES, 11)
}
KNOWN = {
    plan.name: plan
    for plan in join_clusters([spark(name, **data) for name, data in DATA.items()], "site.py")
}
GROUP = KNOWN["spark-1"].groups[0]


def answer(peer_number: int) -> dict[str, Any]:
    """The answer of a member when all is well."""
    devices = dict(zip(PORTS, ("rocep1s0f0", "roceP2p1s0f0"), strict=True))
    rdma = {name: {"device": device, "state": "ACTIVE"} for name, device in devices.items()}
    link = {"carrier": True, "mtu": 9000, "speed": 200000}
    return {
        "links": {name: {**link, "rdma": rdma[name]} for name in devices},
        "rdma": rdma,
        "peers": {f"10.77.0.{peer_number}": "", f"10.77.1.{peer_number}": ""},
        "nccl": {"unit": "vllm-glm.service", "network": "IB", "said": True},
    }


def judgement(**changes: Any) -> LinkReport:
    """The judgement; ``changes`` apply to the second member's answer."""
    answers: dict[str, Any] = {"spark-1": answer(12), "spark-2": answer(11)}
    for path, value in changes.items():
        place: Any = answers["spark-2"]
        *folders, last = path.split("__")
        for folder in folders:
            place = place[folder]
        place[last] = copy.deepcopy(value)
    return judge_links(GROUP, KNOWN, answers)


def test_every_address_of_an_adjacent_peer_is_asked_over_the_interface_of_its_network() -> None:
    assert question(KNOWN["spark-1"], KNOWN, GROUP) == {
        "interfaces": list(PORTS),
        "peers": {"10.77.0.12": (PORTS[0], 9000), "10.77.1.12": (PORTS[1], 9000)},
        "units": ["vllm-glm.service"],
    }


UNHEARD = {"10.77.0.11": "", "10.77.1.11": "100% packet loss"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"links__enp1s0f0np0": None}, "spark-2: there is no interface enp1s0f0np0: DGX OS hides"),
        ({"links__enp1s0f0np0__carrier": False}, "spark-2: enp1s0f0np0 has no link."),
        ({"links__enP2p1s0f0np0__mtu": 1500}, "spark-2: enP2p1s0f0np0 has MTU 1500 instead of"),
        ({"links__enp1s0f0np0__rdma": None}, "spark-2: enp1s0f0np0 is to have the RDMA device"),
        ({"links__enp1s0f0np0__rdma__state": "DOWN"}, "spark-2: the RDMA device rocep1s0f0 of"),
        ({"peers": UNHEARD}, "spark-2: no whole frame reaches spark-1 at 10.77.1.11"),
        ({"nccl__network": "Socket"}, "spark-2: NCCL chose Socket and not IB for"),
        ({"links__enp1s0f0np0__speed": 100000}, "links of different speeds: 100, 200 Gbit/s."),
    ],
)
def test_what_is_wrong_is_named_with_its_member(changes: dict[str, Any], message: str) -> None:
    verdict = judgement(**changes)
    assert len(verdict.wrong) == 1 and verdict.wrong[0].startswith(message)


def test_without_rdma_it_says_plainly_that_it_proved_tcp() -> None:
    plain = {"carrier": True, "mtu": 1500, "speed": None, "rdma": None}
    nccl = {"unit": None, "network": None, "said": False}
    empty_answer = {"links": {"enP7s7": plain}, "rdma": {}, "peers": {}, "nccl": nccl}
    verdict = judge_links(GROUP, KNOWN, dict.fromkeys(NAMES, empty_answer))
    assert verdict.proof == "This proved TCP only: no member that answered has an RDMA device."
    assert verdict.wrong == ()
    # With the devices there, but no model that used them, nothing more is claimed.
    assert "TCP only: that the ranks use RDMA is proved when" in judgement(nccl=nccl).proof


@pytest.mark.parametrize(
    ("second", "code", "message"),
    [
        (answer(11), 0, "NCCL uses RDMA on every member."),
        ({**answer(11), "peers": {"10.77.0.11": "no answer"}}, 1, "WRONG spark-2: no whole frame"),
        ("no connection", 2, "spark-2: could not be asked: no connection"),
    ],
)
def test_the_exit_code_says_whether_it_is_as_the_inventory_says(
    second: Any, code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = write_inventory(tmp_path, DATA)
    answers = {"spark-1": answer(12), "spark-2": second}
    monkeypatch.setattr(cluster_check, "_ask", lambda host, reader_question: answers[host.name])
    result = CliRunner().invoke(main, ["cluster", "check", "-i", str(path)])
    assert (result.exit_code, message in result.output) == (code, True), result.output


@pytest.mark.parametrize("command", ["check", "status"])
def test_an_inventory_whose_models_are_of_no_cluster_is_told_both_keys(command: str, tmp_path):
    path = write_inventory(tmp_path, {"spark-1": {}})
    result = CliRunner().invoke(main, ["cluster", command, "-i", str(path)])
    assert result.exit_code == 2, result.output
    assert "Set `clusters`, and `cluster` of a model." in " ".join(result.stderr.split())


PING = """
printf '%s\\n' "$*" >> {folder}/pinged
case "$*" in *10.77.1.12) echo "ping: local error: message too long, mtu=1500" >&2; exit 1;; esac
"""
JOURNAL = """
case "$*" in
  *=new) echo "spark-1:9:9 [0] NCCL INFO NET/IB : Using [0]rocep1s0f0:1/RoCE [RO]"
         echo "spark-1:9:9 [0] NCCL INFO Using network IB" ;;
  *) echo "spark-1:9:9 [0] NCCL INFO Using network Socket" ;;
esac
"""


def test_the_reader_sends_whole_frames_and_reads_the_log_of_the_newest_start(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    program(folder, "ping", PING.format(folder=tmp_path))
    program(folder, "journalctl", JOURNAL)
    systemd = FakeSystemd(tmp_path / "systemd", monkeypatch)
    for start, name in ((10, "old"), (20, "new"), (0, "")):
        times = {"ExecMainStartTimestampMonotonic": start, "InvocationID": name}
        systemd.unit(f"{name or 'never'}.service", **times)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    units = ["old.service", "new.service", "never.service"]
    peers = {"10.77.0.12": ["lo", 9000], "10.77.1.12": [None, 1500], "fd77::12": ["lo", 9000]}
    facts = ask("link", {"interfaces": ["lo", "enp9s9"], "peers": peers, "units": units})
    assert facts["nccl"] == {"unit": "new.service", "network": "IB", "said": True}
    too_long = "ping: local error: message too long, mtu=1500"
    assert facts["peers"] == dict.fromkeys(peers, "") | {"10.77.1.12": too_long}
    assert facts["links"]["enp9s9"] is None and facts["links"]["lo"]["rdma"] is None
    pinged_addresses = (tmp_path / "pinged").read_text().splitlines()
    # IPv6's header is 20 bytes longer.
    ends = ("1472 10.77.1.12", "8952 -I lo fd77::12", "8972 -I lo 10.77.0.12")
    assert sorted(pinged_addresses) == [f"-n -q -c 2 -i 0.2 -W 2 -M do -s {end}" for end in ends]
