"""The firewall's rules, judged and loaded by nftables itself in a network of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from example import HOSTS, bound_models
from pair import plans
from tools import run

from lockstep.inventory.host import HostPlan
from lockstep.inventory.settings import Firewall
from lockstep.system.firewall import RULES, firewall_files

ALL = Firewall(
    ssh_ports=(22, 2222),
    open=("tcp/3389", "udp/51820"),
    peers=("10.9.0.0/24", "10.9.0.7", "192.168.7.3", "fd00::/64"),
)
PLANS = [*(HostPlan(name, host, bound_models(host)) for name, host in HOSTS.items()), *plans()]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
@pytest.mark.parametrize("firewall", [Firewall(), ALL], ids=["default", "all"])
def test_nftables_takes_the_rules_and_lists_the_same_after_a_second_load(
    plan: HostPlan, firewall: Firewall, tmp_path: Path
) -> None:
    plan = replace(plan, settings=replace(plan.settings, firewall=firewall))
    rules = tmp_path / "firewall.nft"
    rules.write_text(next(file.text for file in firewall_files(plan) if file.path == RULES))
    load = f"nft -f {rules} && nft list table inet lockstep"
    result = run(["unshare", "--net", "sh", "-ec", f"{load}; echo ---; {load}"])
    assert (result.returncode, result.stderr) == (0, "")
    first, second = result.stdout.split("---\n")
    assert first == second
    assert "policy drop" in first and first.count("chain") == 3
