"""The netplan file of the fast link and the firewall's rules, judged by the programs themselves."""

import re
from dataclasses import replace

import pytest
from example import HOSTS, bound_models
from pair import plans
from tools import run, write_files

from lockstep.inventory.host import HostPlan
from lockstep.inventory.settings import Firewall
from lockstep.system.firewall import RULES, firewall_files
from lockstep.system.netplan import NETPLAN, netplan_files


def test_netplan_makes_both_interfaces_large_frames_and_networks_of_their_own(tmp_path) -> None:
    (file,) = netplan_files(plans()[0].settings)
    (path,) = write_files(tmp_path, {NETPLAN: file.text})
    path.chmod(0o600)
    result = run(["netplan", "generate", "--root-dir", str(tmp_path)])
    assert (result.returncode, result.stdout + result.stderr) == (0, "")
    networks = "".join(
        path.read_text()
        for path in sorted((tmp_path / "run/systemd/network").glob("*netplan*.network"))
    )
    assert re.findall(r"^(?:Address|MTUBytes)=(.*)$", networks, re.MULTILINE) == [
        *("9000", "10.77.1.11/24", "9000", "10.77.0.11/24")
    ]
    assert networks.count("RequiredForOnline=no") == 2


ALL = Firewall(
    ssh_ports=(22, 2222),
    open=("tcp/3389", "udp/51820"),
    peers=("10.9.0.0/24", "10.9.0.7", "192.168.7.3", "fd00::/64"),
)
PLANS = [*(HostPlan(name, host, bound_models(host)) for name, host in HOSTS.items()), *plans()]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
@pytest.mark.parametrize("firewall", [Firewall(), ALL], ids=["default", "all"])
def test_nftables_takes_the_rules_and_lists_the_same_after_a_second_load(plan, firewall, tmp_path):
    plan = replace(plan, settings=replace(plan.settings, firewall=firewall))
    rules = tmp_path / "firewall.nft"
    rules.write_text(next(file.text for file in firewall_files(plan) if file.path == RULES))
    load = f"nft -f {rules} && nft list table inet lockstep"
    result = run(["unshare", "--net", "sh", "-ec", f"{load}; echo ---; {load}"])
    assert (result.returncode, result.stderr) == (0, "")
    first, second = result.stdout.split("---\n")
    assert first == second
    assert "policy drop" in first and first.count("chain") == 3
