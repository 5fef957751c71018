"""A group of two hosts under faults, and what its launch gate refuses.

The whole matrix, also with the real vLLM, is `make cluster-faults`.
"""

from __future__ import annotations

from collections.abc import Iterator

import cluster_faults
import pytest
from cluster_faults import REAL, STANDIN, Case
from faults import KNOBS
from stack import Stack

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


def test_a_rank_alone_is_refused_with_the_remedy(together: Stack) -> None:
    answer = together.two.run(f"sudo systemctl start {UNIT}")
    assert answer.code != 0
    journal = together.two.root(f"journalctl -u {UNIT} -n 20 -o cat --no-pager")
    assert f"never here alone. Remedy: switch.sh {STANDIN}" in journal
    together.two.root(f"systemctl reset-failed {UNIT}")


_WORSE = """\
import runpy
from lockstep.inventory import checked

def worse(data):
    # Another command line, and no time to load.
    overrides = {{**data["targets"][{target!r}]["overrides"], "max_num_seqs": 3}}
    changed = {{**data["targets"][{target!r}], "overrides": overrides, "start_timeout_s": 3}}
    return {{**data, "targets": {{**data["targets"], {target!r}: changed}}}}

found = runpy.run_path({original!r})["lab_cluster"]
lab_cluster = checked(__file__, [(name, worse(data)) for name, data in found])
"""


def test_what_does_not_serve_after_a_deploy_is_undone_on_both(together: Stack) -> None:
    for host in together.hosts:
        host.root(f"echo '{{\"load_seconds\": 6}}' > {KNOBS}/standin-sglang.json")
    assert together.one.switch(STANDIN).code == 0
    before = [host.root(f"cat /etc/systemd/system/{UNIT}") for host in together.hosts]
    worse = together.folder / "worse" / "lab_cluster.py"
    worse.parent.mkdir()
    worse.write_text(_WORSE.format(target=STANDIN, original=str(cluster_faults.INVENTORY)))
    done = together.deploy(inventory=worse)
    assert done.code == 1, done.output
    assert f"{STANDIN}: with what was deployed it does not start" in done.output
    assert [host.root(f"cat /etc/systemd/system/{UNIT}") for host in together.hosts] == before
    assert [host.status()["hot"] for host in together.hosts] == [STANDIN, STANDIN]
    assert together.one.status()["targets"][STANDIN]["ready"]
    assert together.one.switch("none").code == 0


_DROP_IN = f"/run/systemd/system/{UNIT}.d"
_TARGETS = "/etc/lockstep/targets.json"
_PACKAGE = "/opt/lockstep/engines/current/venv/lib/python3.11/site-packages/planted-1.0.dist-info"
_WEIGHTS = "/data/models/huggingface/hub/models--mistralai--*NVFP4/snapshots"
#: What differs on spark2: which target is refused, how it is planted, undone, and told.
PLANTED = {
    "image": (
        STANDIN,
        f"cp -p {_TARGETS} /run/kept.json; sed -i -E 's/(sglang@sha256:)..../\\10000/' {_TARGETS}",
        f"mv /run/kept.json {_TARGETS}",
        "docker.io/lmsysorg/sglang: spark1 sha256:",
    ),
    "engine package": (
        REAL,
        f"mkdir {_PACKAGE}",
        f"rmdir {_PACKAGE}",
        "engine package planted: spark1 none, spark2 1.0",
    ),
    "NCCL setting": (
        STANDIN,
        f"mkdir -p {_DROP_IN}; printf '[Service]\\nEnvironment=NCCL_ALGO=Tree\\n'"
        f" > {_DROP_IN}/planted.conf; systemctl daemon-reload",
        f"rm -r {_DROP_IN}; systemctl daemon-reload",
        "setting NCCL_ALGO: spark1 none, spark2 Tree",
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
        "verified, spark2 … not as verified: ",
    ),
}


@pytest.mark.parametrize("what", PLANTED)
def test_the_launch_gate_refuses_a_member_that_differs(together: Stack, what: str) -> None:
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
