"""The netplan file of the fast link, judged by netplan itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pair import plans
from tools import run

from lockstep.files.managed_file import ManagedFile
from lockstep.system.netplan import NETPLAN, netplan_files


def file_of(rank: int) -> ManagedFile:
    (file,) = netplan_files(plans()[rank].settings)
    return file


def run_netplan(folder: Path, text: str) -> tuple[int, str, dict[str, str]]:
    """Run netplan; returns its exit status, its output, and the networkd files that it makes."""
    path = folder / NETPLAN.lstrip("/")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    path.chmod(0o600)
    result = run(["netplan", "generate", "--root-dir", str(folder)])
    files = {
        target_path.name: target_path.read_text()
        for target_path in (folder / "run/systemd/network").glob("*netplan*")
    }
    return result.returncode, result.stdout + result.stderr, files


@pytest.mark.parametrize("rank", [0, 1])
def test_netplan_makes_both_interfaces_large_frames_and_networks_of_their_own(
    rank: int, tmp_path: Path
) -> None:
    code, output, files = run_netplan(tmp_path, file_of(rank).text)
    assert (code, output) == (0, "")
    networks = {name: text for name, text in files.items() if name.endswith(".network")}
    addresses = {
        name: re.findall(r"^(?:Address|MTUBytes)=(.*)$", text, re.MULTILINE)
        for name, text in networks.items()
    }
    assert addresses == {
        "10-netplan-enp1s0f0np0.network": ["9000", f"10.77.0.{11 + rank}/24"],
        "10-netplan-enP2p1s0f0np0.network": ["9000", f"10.77.1.{11 + rank}/24"],
    }
    assert all("RequiredForOnline=no" in text for text in networks.values())


def test_a_slip_in_the_file_would_be_seen(tmp_path: Path) -> None:
    text = file_of(0).text.replace("addresses:", "adresses:")
    code, output, files = run_netplan(tmp_path, text)
    assert code != 0 and "adresses" in output and not files


def test_the_file_is_readable_by_root_only() -> None:
    assert file_of(0).mode == "0600"
