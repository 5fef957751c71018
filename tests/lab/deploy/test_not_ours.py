"""A unit that somebody wrote by hand, enabled and running, under the name of a target."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from stack import Host, Stack, state

from lockstep.onhost.records.ours import ADOPTED, MARK

NAME = "vllm-mine"
UNIT = f"/etc/systemd/system/{NAME}.service"
THEIRS = "[Service]\nExecStart=/usr/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
MINE = {"recipe": "qwen3.6-35b-a3b-prismaquant-dflash-k3", "unit": NAME, "port": 8055}


@pytest.fixture
def theirs(deployed: Stack) -> Iterator[Host]:
    """The second host, with that unit."""
    host = deployed.hosts[1]
    host.root(f"printf %s '{THEIRS}' > {UNIT}; systemctl daemon-reload")
    host.root(f"systemctl enable --quiet --now {NAME}")
    try:
        yield host
    finally:
        host.root(f"systemctl disable --now --quiet {NAME} || true; rm -rf {UNIT} {ADOPTED}")
        host.root(f"systemctl daemon-reload; systemctl reset-failed {NAME} 2>/dev/null || true")
        deployed.good_deploy("-y", "--limit", host.name)


def test_it_is_a_finding_on_its_own_host_and_then_taken_over_on_purpose(
    deployed: Stack, theirs: Host
) -> None:
    before = state(theirs)
    done = deployed.deploy(inventory=deployed.inventory("mine", targets={"mine": MINE}))
    words = " ".join(done.output.split())
    assert done.code == 1
    assert f"spark2 error not-ours: {UNIT} was not made by Lockstep (written 2" in words
    assert words.count("error not-ours") == 1
    assert "nothing was touched on any host" in words
    assert state(theirs) == before
    assert theirs.root(f"cat {UNIT}") == THEIRS
    assert theirs.root(f"systemctl is-active {NAME}; systemctl is-enabled {NAME}").split() == [
        "active",
        "enabled",
    ]

    adopting = deployed.inventory("adopting", targets={"mine": MINE}, adopt=(UNIT,))
    deployed.good_deploy("-y", "--limit", theirs.name, inventory=adopting)
    assert MARK in theirs.root(f"head -n 1 {UNIT}")
    assert theirs.root(f"cat {ADOPTED}{UNIT}") == THEIRS
    assert theirs.run(f"systemctl is-enabled {NAME}").text.strip() == "static"
    # It ran, so it was restarted as what it is now: a model that serves.
    assert theirs.status()["hot"] == "mine"
