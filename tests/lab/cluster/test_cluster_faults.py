"""A group of two hosts under faults, also with the real vLLM, and what its launch check refuses.

The whole matrix is `make cluster-faults`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import booting
import cluster_faults
import pytest
from cluster_faults import REAL, STANDIN, Case
from faults import KNOBS
from stack import Stack, until

from lockstep.onhost.records import boots

UNIT = cluster_faults.UNITS[STANDIN]


@pytest.fixture(scope="module")
def together(request: pytest.FixtureRequest) -> Iterator[Stack]:
    """The two hosts as one cluster; as they were afterwards."""
    stack: Stack = request.getfixturevalue("stack")
    request.getfixturevalue("first")
    stack.good_deploy(inventory=cluster_faults.INVENTORY)
    yield stack
    stack.one.switch("none", "--wait")
    for host in stack.hosts:
        host.root(f"rm -f {KNOBS}/standin-*.json")
    stack.good_deploy()


@pytest.mark.parametrize(
    "case",
    [
        Case(STANDIN, "killed", 1, "request"),
        Case(STANDIN, "power", 1, "starting"),
        Case(STANDIN, "cut", 1, "idle"),
    ],
    ids=str,
)
def test_no_half_of_a_group_stays_up(together: Stack, case: Case) -> None:
    counts = cluster_faults.Counts()
    cluster_faults.run(together, case, counts)
    assert counts.violations == []


def test_the_real_vllm_answers_from_both_hosts(together: Stack) -> None:
    assert together.one.switch(REAL).code == 0
    port, unit = cluster_faults.PORTS[REAL], cluster_faults.UNITS[REAL]
    (model,) = together.one.get(f"http://127.0.0.1:{port}/v1/models")["data"]
    reply = together.one.complete(port, model["id"])
    assert reply["usage"]["completion_tokens"] == 8
    assert [host.show(unit, "ActiveState") for host in together.hosts] == ["active", "active"]
    assert all(cluster_faults.held_memory(host) for host in together.hosts)
    assert together.one.switch("none").code == 0
    assert [cluster_faults.held_memory(host) for host in together.hosts] == [[], []]


def test_a_rank_alone_is_refused_with_the_remedy(together: Stack) -> None:
    answer = together.two.run(f"sudo systemctl start {UNIT}")
    assert answer.code != 0
    together.two.logs(f"never here alone. Remedy: switch.sh {STANDIN}", "-n 20", f"-u {UNIT}")
    together.two.root(f"systemctl reset-failed {UNIT}")


@pytest.fixture
def hot(together: Stack) -> None:
    """The group is hot, from the test before where that left it so."""
    # Faster than the memory of one Spark allows, not than that of two.
    turn(together, decode_rate=100)
    if together.one.status()["hot"] != STANDIN:
        assert together.one.switch(STANDIN).code == 0


@pytest.fixture(scope="module")
def cold(together: Stack) -> None:
    """No model is hot any more."""
    assert together.one.switch("none").code == 0


def turn(stack: Stack, **knobs: float) -> None:
    """Knobs of the engine, for its next start."""
    for host in stack.hosts:
        host.root(f"echo '{json.dumps(knobs)}' > {KNOBS}/standin-sglang.json")


def test_each_rank_is_started_with_exactly_the_recipes_words(together: Stack, hot: None) -> None:
    asked = together.variants(cluster_faults.INVENTORY)
    for rank, host in enumerate(together.hosts):
        # The engine, and what it was forked from.
        pid = cluster_faults.held_memory(host)[0]
        _, program, *words = host.root(f"tr '\\0' '\\n' < /proc/{pid}/cmdline").splitlines()
        assert [Path(program).name, *words] == asked[host.name][STANDIN]["serve"]
        assert words[words.index("--node-rank") + 1] == str(rank)
        assert words[words.index("--nnodes") + 1] == "2"


def test_what_is_split_over_hosts_is_measured_where_it_answers(
    together: Stack, hot: None, tmp_path: Path
) -> None:
    asked = {"inventory": cluster_faults.INVENTORY}
    file = tmp_path / "rank 0.json"
    code, suites, said = together.bench(file, "--suite", "decode", **asked)
    # On a busy machine the ruler may call its own repeats too far apart; they were made.
    assert code == 0 or "suspect steady" in said, said
    assert said.count("technical: 256 tokens in ") == 4
    assert suites["decode"]["verdict"] == ("suspect" if code else "measured")
    assert json.loads(file.read_text())["subject"]["target"] == STANDIN
    code, suites, said = together.bench(tmp_path / "rank 1.json", host="spark2", **asked)
    assert (code, suites) == (2, {})
    assert "answers on another host of cluster pair" in " ".join(said.split())
    assert "Measure it on spark1" in " ".join(said.split())


@pytest.mark.parametrize(
    ("knobs", "changes", "said"),
    [
        # No time to load.
        (
            {"load_seconds": 6, "decode_rate": 100},
            {"start_timeout_s": 3},
            f"{STANDIN}: with what was deployed it does not start",
        ),
        # The change is as good as any; from its next start on the engine is slow.
        (
            {"decode_rate": 40},
            {"floor": {"not_below": "60 %"}},
            f"{STANDIN}: with what was deployed the gate refused it",
        ),
    ],
    ids=["it does not start", "it is slower than its floor"],
)
def test_what_does_not_pass_after_a_deploy_is_undone_on_both(
    together: Stack,
    hot: None,
    knobs: dict[str, float],
    changes: dict[str, Any],
    said: str,
) -> None:
    turn(together, **knobs)
    before = [host.root(f"cat /etc/systemd/system/{UNIT}") for host in together.hosts]
    # Another command line, so that the model is started again.
    changes = {"overrides": {"max_num_seqs": 3}, **changes}
    changed = together.inventory("changed", cluster_faults.INVENTORY, targets={STANDIN: changes})
    done = together.deploy(inventory=changed)
    assert done.code == 1, done.output
    assert said in " ".join(done.output.split())
    assert [host.root(f"cat /etc/systemd/system/{UNIT}") for host in together.hosts] == before
    assert [host.status()["hot"] for host in together.hosts] == [STANDIN, STANDIN]
    assert together.one.status()["targets"][STANDIN]["ready"]


def test_after_a_power_cut_the_first_member_waits_for_the_others(together: Stack) -> None:
    at_boot = together.inventory("at boot", cluster_faults.INVENTORY, boot="last")
    together.good_deploy(inventory=at_boot)
    one, two = together.hosts
    assert one.switch("none").code == 0
    for host in (one, two):
        # The power cuts of other tests count like these.
        host.root(f"rm -f {booting.RECORD}")
    assert one.switch(STANDIN).code == 0
    other = booting.Booting(together, two, "last")
    other.take_power()
    try:
        together.lab("cycle", one.name)
        told = f"journalctl -b -o cat --no-pager -u {boots.UNIT}"
        waits = f"{STANDIN} waits for spark2"
        until(lambda: waits in one.root(told), f"spark1: {waits}")
        assert one.active() == set()
    finally:
        other.give_power()
    for host in (one, two):
        until(lambda host=host: host.status()["hot"] == STANDIN, f"{host.name}: {STANDIN} is hot")
    assert f"nothing is made hot: spark1 makes {STANDIN} hot" in two.root(told)


_DROP_IN = f"/run/systemd/system/{UNIT}.d"
_TARGETS = "/etc/lockstep/targets.json"
_LAUNCHER = f"/data/scripts/llm/{Path(UNIT).stem}-launch.sh"
_PACKAGE = "/opt/lockstep/engines/current/venv/lib/python3.11/site-packages/planted-1.0.dist-info"
_WEIGHTS = "/data/models/huggingface/hub/models--mistralai--*NVFP4/snapshots"
#: What differs on spark2: which target is refused, how it is planted, undone, and told.
PLANTED = {
    "image": (
        STANDIN,
        f"cp -p {_TARGETS} /run/kept.json; sed -i -E 's/(sglang@sha256:)..../\\10000/' {_TARGETS}",
        f"mv /run/kept.json {_TARGETS}",
        f"changed since the deploy: spark1 nothing, spark2 {_TARGETS} (",
    ),
    "flag": (
        STANDIN,
        f"cp -p {_LAUNCHER} /run/kept.sh; sed -i 's/--nnodes/--enable-metrics &/' {_LAUNCHER}",
        f"mv /run/kept.sh {_LAUNCHER}",
        f"changed since the deploy: spark1 nothing, spark2 {_LAUNCHER} (",
    ),
    "engine package": (
        REAL,
        f"mkdir {_PACKAGE}",
        f"rmdir {_PACKAGE}",
        "nothing was stopped. engine: spark1 ",
    ),
    "NCCL setting": (
        STANDIN,
        f"mkdir -p {_DROP_IN}; printf '[Service]\\nEnvironment=NCCL_ALGO=Tree\\n'"
        f" > {_DROP_IN}/planted.conf; systemctl daemon-reload",
        f"rm -r {_DROP_IN}; systemctl daemon-reload",
        f"changed since the deploy: spark1 nothing, spark2 {_DROP_IN}/planted.conf (",
    ),
    "MTU": (
        STANDIN,
        "ip link set dev enP7s7 mtu 1400",
        "ip link set dev enP7s7 mtu 1500",
        "MTU of the fabric: spark1 1500, spark2 1400",
    ),
    # The deploy at the end verifies the file again.
    "weights": (
        STANDIN,
        f"touch $(find -L {_WEIGHTS} -name '*.safetensors' | sort | head -1)",
        "true",
        ": spark1 as verified, spark2 not as verified: ",
    ),
}


@pytest.mark.parametrize("what", PLANTED)
def test_the_launch_check_refuses_a_member_that_differs(
    together: Stack, cold: None, what: str
) -> None:
    target, plant, undo, said = PLANTED[what]
    together.two.root(plant)
    try:
        answer = together.one.switch(target)
    finally:
        together.two.root(undo)
    assert answer.code == 1, answer.text
    text = " ".join(answer.text.split())
    assert "the members of pair differ; nothing was stopped" in text
    assert said in text
