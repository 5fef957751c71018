"""A group of two hosts under faults, also with the real vLLM, and refusals of its launch check.

The whole matrix is `make cluster-faults`. The tests go from one to the next with as few deploys and
starts of the group as possible; at the end its link is a ConnectX port without a cable.
"""

import json
from pathlib import Path

import booting
import cluster_faults
import pytest
from cluster_faults import REAL, STANDIN, Case
from faults import KNOBS
from stack import Host, until

from lockstep.onhost.records import models_by_boot

UNIT = cluster_faults.UNITS[STANDIN]


@pytest.fixture(scope="module")
def inventory(stack, first):
    """The two hosts as one cluster whose members make their last model hot again."""
    return stack.inventory("at boot", cluster_faults.INVENTORY, boot="last")


@pytest.fixture(scope="module")
def together(stack, inventory):
    """The hosts after a deploy of the cluster; undone afterwards."""
    stack.good_deploy(inventory=inventory)
    yield stack
    stack.spark1.switch("none", "--wait")
    for host in stack.hosts:
        host.root(f"rm -f {KNOBS}/standin-*.json")
    stack.good_deploy()


@pytest.fixture(scope="module")
def hot(together):
    """Make the group hot. It is faster than one Spark's memory allows, and not than that of two."""
    for host in together.hosts:
        host.root(f"echo '{json.dumps({'decode_rate': 100})}' > {KNOBS}/standin-sglang.json")
        # The power cuts of other tests count like those of this file.
        host.root(f"rm -f {booting.RECORD}")
    assert together.spark1.switch(STANDIN).code == 0


@pytest.fixture(scope="module")
def cold(together):
    """Make every model cold."""
    assert together.spark1.switch("none").code == 0


def test_each_rank_is_started_with_exactly_the_recipes_words(together, hot, inventory):
    variants = together.variants(inventory)
    for rank, host in enumerate(together.hosts):
        # The engine, and what it was forked from.
        pid = cluster_faults.held_memory(host)[0]
        _, program, *words = host.root(f"tr '\\0' '\\n' < /proc/{pid}/cmdline").splitlines()
        assert [Path(program).name, *words] == variants[host.name][STANDIN]["serve"]
        assert words[words.index("--node-rank") + 1] == str(rank)
        assert words[words.index("--nnodes") + 1] == "2"


def test_what_is_split_over_hosts_is_measured_where_it_answers(together, hot, inventory, tmp_path):
    options = {"inventory": inventory}
    file = tmp_path / "rank 0.json"
    code, suites, output = together.bench(file, "--suite", "decode", **options)
    # On a busy machine the ruler may call its own repeats too far apart; they were made.
    assert code == 0 or "suspect steady" in output, output
    assert output.count("technical: 256 tokens in ") == 4
    assert suites["decode"]["verdict"] == ("suspect" if code else "measured")
    assert json.loads(file.read_text())["subject"]["model"] == STANDIN
    code, suites, output = together.bench(tmp_path / "rank 1.json", host="spark2", **options)
    assert (code, suites) == (2, {})
    assert "answers on another host of cluster pair" in " ".join(output.split())
    assert "Measure it on spark1" in " ".join(output.split())


def test_after_a_power_cut_the_first_member_waits_for_the_others(together, hot):
    first_host, two = together.hosts
    power = booting.Booting(together, two)
    power.take_power()
    try:
        together.lab("cycle", first_host.name)
        journal_command = f"journalctl -b -o cat --no-pager -u {models_by_boot.UNIT}"
        waits = f"{STANDIN} waits for spark2"
        until(lambda: waits in first_host.root(journal_command), f"spark1: {waits}")
        assert first_host.active() == set()
    finally:
        power.give_power()
    for host in (first_host, two):
        until(lambda host=host: host.status()["hot"] == STANDIN, f"{host.name}: {STANDIN} is hot")
    assert f"nothing is made hot: spark1 makes {STANDIN} hot" in two.root(journal_command)


@pytest.mark.parametrize(
    "case",
    [
        Case(0, model=STANDIN, fault="killed", rank=1, phase="request"),
        Case(1, model=STANDIN, fault="cut", rank=1, phase="idle"),
    ],
    ids=str,
)
def test_no_half_of_a_group_stays_up(together, case):
    cluster_faults.run(together, case)
    assert case.violations == []


def test_a_rank_alone_is_refused_with_the_remedy(together, cold):
    def lone_start() -> str:
        # systemd itself refuses a unit that the tests before have started often.
        two.look(f"systemctl reset-failed {UNIT}")
        # At the console: a login right after the cut of the tests before may fail instead.
        answer = two.look(f"systemctl start {UNIT}")
        assert "Job for" in answer.text, answer
        journal = two.root(f"journalctl -q -b --no-pager -o cat -n 20 -u {UNIT}")
        return journal if f"never here alone. Remedy: switch.sh {STANDIN}" in journal else ""

    two = together.two
    # The agent stops a rank that is up alone; that may come before the check's own refusal.
    until(lone_start, f"spark2: {UNIT} is refused with the remedy")
    two.look(f"systemctl reset-failed {UNIT}")


_DROP_IN = f"/run/systemd/system/{UNIT}.d"
_MODELS = "/etc/lockstep/models.json"
_LAUNCHER = f"/data/scripts/llm/{Path(UNIT).stem}-launch.sh"
_PACKAGE = "/opt/lockstep/engines/current/venv/lib/python3.11/site-packages/planted-1.0.dist-info"
_WEIGHTS = "/data/models/huggingface/hub/models--mistralai--*NVFP4/snapshots"
#: What differs on spark2: how it is planted, undone, and told.
PLANTED = {
    "image": (
        f"cp -p {_MODELS} /run/kept.json; sed -i -E 's/(sglang@sha256:)..../\\10000/' {_MODELS}",
        f"mv /run/kept.json {_MODELS}",
        f"{_MODELS} (",
    ),
    "flag": (
        f"cp -p {_LAUNCHER} /run/kept.sh; sed -i 's/--nnodes/--enable-metrics &/' {_LAUNCHER}",
        f"mv /run/kept.sh {_LAUNCHER}",
        f"{_LAUNCHER} (",
    ),
    "NCCL setting": (
        f"mkdir -p {_DROP_IN}; printf '[Service]\\nEnvironment=NCCL_ALGO=Tree\\n'"
        f" > {_DROP_IN}/planted.conf; systemctl daemon-reload",
        f"rm -r {_DROP_IN}; systemctl daemon-reload",
        f"{_DROP_IN}/planted.conf (",
    ),
    "MTU": (
        "ip link set dev enP7s7 mtu 1400",
        "ip link set dev enP7s7 mtu 1500",
        "MTU of the fabric: spark1 1500, spark2 1400",
    ),
    # The deploy at the end verifies the file again.
    "weights": (
        f"touch $(find -L {_WEIGHTS} -name '*.safetensors' | sort | head -1)",
        "true",
        ": spark1 as verified, spark2 not as verified: ",
    ),
}


def test_the_launch_check_refuses_a_member_that_differs_and_names_all_differences(together, cold):
    for plant, _, _ in PLANTED.values():
        together.two.root(plant)
    together.two.root(f"mkdir {_PACKAGE}")
    try:
        # What runs in a container has no package of the venv.
        answer, real = together.spark1.switch(STANDIN), together.spark1.switch(REAL)
    finally:
        for _, undo, _ in PLANTED.values():
            together.two.root(undo)
        together.two.root(f"rmdir {_PACKAGE}")
    assert (answer.code, real.code) == (1, 1), answer.text + real.text
    text = " ".join(answer.text.split())
    assert "the members of pair differ; nothing was stopped. " in text
    assert "changed since the deploy: spark1 nothing, spark2 " in text
    assert [
        difference for difference, (_, _, message) in PLANTED.items() if message not in text
    ] == []
    assert "; engine: spark1 " in " ".join(real.text.split())


def test_the_real_vllm_answers_from_both_hosts(together):
    assert together.spark1.switch(REAL).code == 0
    port, unit = cluster_faults.PORTS[REAL], cluster_faults.UNITS[REAL]
    (model,) = together.spark1.get(f"http://127.0.0.1:{port}/v1/models")["data"]
    reply = together.spark1.complete(port, model["id"])
    assert reply["usage"]["completion_tokens"] == 8
    assert [host.show(unit, "ActiveState") for host in together.hosts] == ["active", "active"]
    assert all(cluster_faults.held_memory(host) for host in together.hosts)
    assert together.spark1.switch("none").code == 0
    assert [cluster_faults.held_memory(host) for host in together.hosts] == [[], []]


#: A ConnectX port whose interface vanishes with its cable, as DGX OS has it.
PORT = "enp1s0f0np0"


def test_without_cables_hosts_are_deployed_to_and_with_them_the_group_starts_without_a_deploy(
    together, cold, inventory
):
    first_host, two = together.hosts
    cabled_hosts = {
        f"{host.name}__fabric": {
            "interfaces": {PORT: f"10.88.0.{number}/24"},
            # A lab has no RDMA.
            "rdma": {PORT: ""},
        }
        for number, host in enumerate(together.hosts, 11)
    }
    path = together.inventory("cabled", inventory, **cabled_hosts)
    for host in together.hosts:
        together.lab("cut", host.name, "--connectx")
    try:
        output = " ".join(together.good_deploy(inventory=path).output.split())
        assert f"warning no-cable: there is no network interface {PORT}" in output
        # What is its own is served.
        assert first_host.switch("qwen").code == 0
        reason = f"spark1 has no network interface {PORT}; nothing was stopped. Remedy: plug"
        assert reason in refusal(first_host)
        assert first_host.status()["hot"] == "qwen"
        # A member without its cable says so to the one that asks.
        together.lab("mend", "spark1", "--connectx")
        assert f"spark2 has no network interface {PORT}" in refusal(first_host)
        together.lab("mend", "spark2", "--connectx")
        answer = two.switch(STANDIN)
        assert answer.code == 0, answer.text
        first_host.switch("none", "--wait")
    finally:
        for host in together.hosts:
            together.lab("cut", host.name, "--connectx")


def refusal(host: Host) -> str:
    """The answer of a switch to the group that refuses it."""
    answer = host.switch(STANDIN)
    assert answer.code not in (0, 3, 4)
    return " ".join(answer.text.split())
