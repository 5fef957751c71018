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
    (found,) = netplan_files(plans()[rank].settings)
    return found


def generated(folder: Path, text: str) -> tuple[int, str, dict[str, str]]:
    """netplan's exit status, what it says, and the networkd files that it makes."""
    path = folder / NETPLAN.lstrip("/")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    path.chmod(0o600)
    done = run(["netplan", "generate", "--root-dir", str(folder)])
    made = {
        each.name: each.read_text() for each in (folder / "run/systemd/network").glob("*netplan*")
    }
    return done.returncode, done.stdout + done.stderr, made


@pytest.mark.parametrize("rank", [0, 1])
def test_netplan_makes_both_twins_large_frames_and_networks_of_their_own(
    rank: int, tmp_path: Path
) -> None:
    code, said, made = generated(tmp_path, file_of(rank).text)
    assert (code, said) == (0, "")
    networks = {name: text for name, text in made.items() if name.endswith(".network")}
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
    code, said, made = generated(tmp_path, text)
    assert code != 0 and "adresses" in said and not made


def test_the_file_is_readable_by_root_only() -> None:
    assert file_of(0).mode == "0600"
