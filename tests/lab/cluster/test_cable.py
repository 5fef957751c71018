"""A ConnectX port whose interface vanishes with its cable, as DGX OS has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import cluster_faults
import pytest
from cluster_faults import STANDIN
from stack import Stack

PORT = "enp1s0f0np0"
UNIT = cluster_faults.UNITS[STANDIN]
_CABLED = """\
import runpy
from lockstep.deploy.checked import checked

found, _ = runpy.run_path({original!r})["lab_cluster"]
lab_cluster = checked(
    __file__,
    [
        (
            name,
            {{
                **data,
                "fabric": {{
                    **data["fabric"],
                    "interfaces": {{{port!r}: f"10.88.0.{{number}}/24"}},
                    # A lab has no RDMA.
                    "rdma": {{{port!r}: ""}},
                }},
            }},
        )
        for number, (name, data) in enumerate(found, 11)
    ],
)
"""


@pytest.fixture(scope="module")
def cabled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Stack, Path]]:
    """The two hosts as one cluster over their ConnectX ports; as they were afterwards."""
    stack: Stack = request.getfixturevalue("stack")
    request.getfixturevalue("first")
    path = tmp_path_factory.mktemp("cabled") / "lab_cluster.py"
    path.write_text(_CABLED.format(original=str(cluster_faults.INVENTORY), port=PORT))
    for host in stack.hosts:
        stack.lab("cut", host.name, "--connectx")
    yield stack, path
    stack.one.switch("none", "--wait")
    for host in stack.hosts:
        stack.lab("cut", host.name, "--connectx")
    stack.good_deploy()


def test_without_its_cable_a_host_is_deployed_to_and_serves_what_is_its_own(
    cabled: tuple[Stack, Path],
) -> None:
    stack, inventory = cabled
    done = stack.good_deploy(inventory=inventory)
    said = " ".join(done.output.split())
    assert f"warning no-cable: there is no network interface {PORT}" in said
    assert stack.good_deploy(inventory=inventory).changed == set()
    assert stack.one.switch("qwen").code == 0
    refused = stack.one.switch(STANDIN)
    words = " ".join(refused.text.split())
    assert refused.code not in (0, 3, 4)
    assert f"spark1 has no network interface {PORT}; nothing was stopped. Remedy: plug" in words
    assert stack.one.status()["hot"] == "qwen"


def test_a_member_without_its_cable_says_so_to_the_one_that_asks(
    cabled: tuple[Stack, Path],
) -> None:
    stack, _ = cabled
    stack.lab("mend", "spark1", "--connectx")
    refused = stack.one.switch(STANDIN)
    assert refused.code not in (0, 3, 4)
    assert f"spark2 has no network interface {PORT}" in " ".join(refused.text.split())


def test_with_the_cable_back_the_group_starts_and_no_deploy_is_needed(
    cabled: tuple[Stack, Path],
) -> None:
    stack, inventory = cabled
    for host in stack.hosts:
        stack.lab("mend", host.name, "--connectx")
    answer = stack.two.switch(STANDIN)
    assert answer.code == 0, answer.text
    done = stack.good_deploy(inventory=inventory)
    assert done.changed == set() and "no-cable" not in done.output
    assert stack.one.switch("none").code == 0
