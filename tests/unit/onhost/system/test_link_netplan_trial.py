"""The program that gives the fast link its addresses: no host is lost, whenever it is cut off."""

import io
import json
import sys
from pathlib import Path

import pytest
from a_probe import program

from lockstep.onhost.core import errors, layout
from lockstep.onhost.records import ownership
from lockstep.onhost.system import link_netplan_trial

NEW = f"# {ownership.MARK}\nnetwork: {{new}}\n"
OLD = f"# {ownership.MARK}\nnetwork: {{old}}\n"
ADDRESSES = [
    {"local": "192.168.1.10", "prefixlen": 24, "scope": "global"},
    {"local": "fe80::1", "prefixlen": 64, "scope": "link"},
]
LINKS = [
    {"ifname": "lo", "mtu": 65536, "addr_info": [{"local": "127.0.0.1", "prefixlen": 8}]},
    {"ifname": "enP7s7", "mtu": 1500, "addr_info": ADDRESSES},
]
STOP_TIMER = "systemctl stop -- lockstep-fabric-back.timer"
ROUTES = [{"dst": "default", "gateway": "192.168.1.1", "dev": "enP7s7", "metric": 100}]
# netplan takes every file, unless it says "bad"; what there is, `ip` knows.
NETPLAN = """
echo "netplan $1" >> {folder}/ran
case "$1" in
  generate) grep -q bad "$3"/etc/netplan/* && {{ echo "Error in network definition" >&2; exit 1; }}
            true ;;
esac
"""
IP = """
case "$*" in
  "-json address show") cat {folder}/links ;;
  "-json route show default") cat {folder}/routes ;;
  *) echo "ip $*" >> {folder}/ran ;;
esac
"""


class Link:
    def __init__(self, folder: Path, monkeypatch) -> None:
        self.paths, self._patch = layout.Paths(folder), monkeypatch
        self.file = folder / "etc/netplan/40-cx7.yaml"
        self.file_on_trial = folder / "run/netplan/40-cx7.yaml"
        self.file.parent.mkdir(parents=True)
        (folder / "links").write_text(json.dumps(LINKS))
        (folder / "routes").write_text(json.dumps(ROUTES))

    def run(self, *words: str) -> int:
        return link_netplan_trial.main(list(words), self.paths)

    def attempt(self, text: str = NEW, *words: str) -> int:
        self._patch.setattr(sys, "stdin", io.StringIO(text))
        return self.run("try", "--seconds", "40", *words)

    @property
    def commands(self) -> list[str]:
        """Commands since the last look."""
        path = self.paths.root / "ran"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines


@pytest.fixture
def link(tmp_path, monkeypatch) -> Link:
    folder = tmp_path / "bin"
    program(folder, "netplan", NETPLAN.format(folder=tmp_path))
    program(folder, "ip", IP.format(folder=tmp_path))
    for name in ("systemctl", "systemd-run"):
        program(folder, name, f'echo "{name} $@" >> {tmp_path}/ran')
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return Link(tmp_path, monkeypatch)


def test_the_timer_that_undoes_it_is_armed_before_netplan_is_asked_and_what_is_confirmed_stays(
    link,
):
    assert link.attempt() == 0
    generate, stop, armed_timer, apply = link.commands
    assert (generate, apply) == ("netplan generate", "netplan apply")
    assert stop == STOP_TIMER
    assert "--on-active=40" in armed_timer and armed_timer.endswith("/lockstep fabric back")
    assert link.file_on_trial.read_text() == NEW
    assert link.file_on_trial.stat().st_mode & 0o777 == 0o600
    # A reboot now empties /run, and with it the trial.
    assert not link.file.exists()
    assert (link.run("keep"), link.run("back")) == (0, 0)
    assert (link.file.read_text(), link.file.stat().st_mode & 0o777) == (NEW, 0o600)
    assert not link.file_on_trial.exists()


@pytest.mark.parametrize("earlier_text", [None, OLD])
def test_what_nobody_confirms_is_taken_back_with_the_addresses_of_before(earlier_text, link):
    if earlier_text:
        link.file.write_text(earlier_text)
    link.attempt()
    # A second deploy tries too, and is not confirmed either.
    link.attempt(NEW.replace("new", "newer"))
    assert link.commands
    assert link.run("back") == 0
    assert (link.file.read_text() if link.file.exists() else None) == earlier_text
    assert not link.file_on_trial.exists()
    assert link.commands == [
        "netplan apply",
        "ip link set dev enP7s7 mtu 1500",
        "ip address replace 192.168.1.10/24 dev enP7s7",
        "ip route replace default via 192.168.1.1 dev enP7s7 metric 100",
        STOP_TIMER,
    ]
    with pytest.raises(errors.Problem, match="was taken back: no new login came through"):
        link.run("keep")


def test_a_file_that_netplan_does_not_take_changes_nothing(link):
    link.file.write_text(OLD)
    with pytest.raises(errors.Problem, match="failed: Error in network definition"):
        link.attempt(NEW.replace("new", "bad"))
    assert (link.file.read_text(), link.commands) == (OLD, ["netplan generate"])


def test_nvidias_own_file_is_replaced_only_where_the_inventory_takes_it_over(link):
    # As DGX OS' instructions for two Sparks write it.
    text = "network:\n  version: 2\n  ethernets:\n    enp1s0f0np0:\n      link-local: [ipv4]\n"
    link.file.write_text(text)
    with pytest.raises(errors.Problem, match=r"40-cx7.yaml was not made by Lockstep \(written "):
        link.attempt()
    assert (link.file.read_text(), link.commands) == (text, [])
    assert link.attempt(NEW, "--adopt") == 0
    assert link.file_on_trial.read_text() == NEW
    assert link.run("back") == 0
    assert link.file.read_text() == text
