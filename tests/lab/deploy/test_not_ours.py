"""A unit that somebody wrote by hand, enabled and running, under the name of a model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from stack import Host, Stack, state

from lockstep.onhost.records.ownership import ADOPTED_FOLDER, MARK

NAME = "vllm-mine"
UNIT = f"/etc/systemd/system/{NAME}.service"
THEIRS = "[Service]\nExecStart=/usr/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
MINE = {"recipe": "qwen3.6-35b-a3b-prismaquant-dflash-k3", "unit": NAME, "port": 8055}


@pytest.fixture
def foreign_host(deployed_stack: Stack) -> Iterator[Host]:
    """The second host, with that unit."""
    host = deployed_stack.hosts[1]
    host.root(f"printf %s '{THEIRS}' > {UNIT}; systemctl daemon-reload")
    host.root(f"systemctl enable --quiet --now {NAME}")
    try:
        yield host
    finally:
        host.root(f"systemctl disable --now --quiet {NAME} || true; rm -rf {UNIT} {ADOPTED_FOLDER}")
        host.root(f"systemctl daemon-reload; systemctl reset-failed {NAME} 2>/dev/null || true")
        deployed_stack.good_deploy("-y", "--limit", host.name)


def test_it_is_a_finding_on_its_own_host_and_then_taken_over_on_purpose(
    deployed_stack: Stack, foreign_host: Host
) -> None:
    earlier_state = state(foreign_host)
    result = deployed_stack.deploy(
        inventory=deployed_stack.inventory("mine", models={"mine": MINE})
    )
    words = " ".join(result.output.split())
    assert result.code == 1
    assert f"spark2 error not-ours: {UNIT} was not made by Lockstep (written 2" in words
    assert words.count("error not-ours") == 1
    assert "nothing was touched on any host" in words
    assert state(foreign_host) == earlier_state
    assert foreign_host.root(f"cat {UNIT}") == THEIRS
    assert foreign_host.root(
        f"systemctl is-active {NAME}; systemctl is-enabled {NAME}"
    ).split() == [
        "active",
        "enabled",
    ]

    adopting = deployed_stack.inventory("adopting", models={"mine": MINE}, adopt=(UNIT,))
    deployed_stack.good_deploy("-y", "--limit", foreign_host.name, inventory=adopting)
    assert MARK in foreign_host.root(f"head -n 1 {UNIT}")
    assert foreign_host.root(f"cat {ADOPTED_FOLDER}{UNIT}") == THEIRS
    assert foreign_host.run(f"systemctl is-enabled {NAME}").text.strip() == "static"
    # It ran, so it was restarted as what it is now: a model that serves.
    assert foreign_host.status()["hot"] == "mine"
