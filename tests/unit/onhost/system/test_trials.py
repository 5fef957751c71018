"""Rules of the firewall, and addresses of the fast link: no host is lost, however it is cut off."""

import io
import json
import sys
from pathlib import Path

import onhost_fake_systemd
import pytest
from a_probe import program
from onhost_fakes import FakeSystemd

from lockstep.onhost.core import errors, layout
from lockstep.onhost.facts import firewall as facts
from lockstep.onhost.facts.reader_helpers import seal
from lockstep.onhost.records import ownership
from lockstep.onhost.system import firewall_trial, link_netplan_trial

NEW = "table inet lockstep { new }\n"
KEY = 64 * "a"
OLD = "table inet lockstep { old }\n"

# A table in a file: -f loads one, unless it says "bad"; a delete empties it. Without -s, a list has
# counts too, which differ each time.
NFT = """
state={folder}/table
case "$1" in
  -s) shift ;;
  list) date +%N ;;
esac
case "$1" in
  list) test -s $state && cat $state ;;
  -f) grep -q bad "$2" && {{ echo "Error: syntax error" >&2; exit 1; }}
      grep -v -e "^delete" -e "^table inet lockstep$" "$2" > $state; true ;;
  *) : > $state ;;
esac
"""


class Kernel:
    """A host with rules to load, and its systemd."""

    def __init__(self, folder: Path, systemd: FakeSystemd) -> None:
        self.systemd, self.paths = systemd, layout.Paths(folder)
        self.rules = folder / "etc/lockstep/firewall.nft"
        self.kept_rules = folder / "etc/lockstep/firewall-kept.nft"
        self.table = folder / "table"
        self.rules.parent.mkdir(parents=True)
        self.rules.write_text(NEW)

    def run(self, *verbs: str) -> int:
        """Run the program for each verb, to the first that fails."""
        words = {"try": ["try", "--seconds", "90"]}
        results = (firewall_trial.main(words.get(verb, [verb]), self.paths) for verb in verbs)
        return next(filter(None, results), 0)

    @property
    def now(self) -> str:
        return self.table.read_text() if self.table.exists() else ""

    def seen_table(self) -> str | None:
        """The text of the rules in force as the reader shows it; None without a table."""
        values = {item: value for _, item, value in facts.read({"key": KEY})}
        value = values.get("inet lockstep")
        sealed_texts = {seal(KEY, text.encode()): text for text in ("", OLD, NEW)}
        return sealed_texts.get(str(value), str(value)) if values else None


@pytest.fixture
def kernel(tmp_path, systemd, monkeypatch) -> Kernel:
    program(tmp_path / "bin", "nft", NFT.format(folder=tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    fake_kernel = Kernel(tmp_path, systemd)
    monkeypatch.setattr(layout, "Paths", lambda: fake_kernel.paths)
    return fake_kernel


STOP_TIMER = "systemctl stop -- lockstep-firewall-back.timer"


@pytest.mark.parametrize("deploys", [1, 2])
def test_rules_come_with_a_timer_that_takes_them_back_and_stay_once_confirmed(kernel, deploys):
    """Also where two deploys try and confirm at once."""
    assert kernel.run(*["try"] * deploys) == 0
    armed_timer = next(line for line in kernel.systemd.calls if line.startswith("systemd-run"))
    assert "--on-active=90" in armed_timer and armed_timer.endswith("/lockstep firewall back")
    # Not yet for the next boot.
    assert (kernel.now, kernel.kept_rules.exists()) == (NEW, False)
    assert kernel.run(*["keep"] * deploys) == 0
    assert kernel.kept_rules.read_text() == kernel.now == NEW
    assert kernel.systemd.calls[-1] == STOP_TIMER
    # At the next boot.
    kernel.table.unlink()
    assert (kernel.run("load"), kernel.now) == (0, NEW)
    assert (kernel.run("clear"), kernel.now) == (0, "")


@pytest.mark.parametrize("earlier_rules", ["", OLD])
def test_taken_back_the_host_is_as_before_and_a_late_confirmation_keeps_nothing(
    kernel, earlier_rules
):
    kernel.table.write_text(earlier_rules)
    for verbs in (("try", "back"), ("back",)):
        assert (kernel.run(*verbs), kernel.now) == (0, earlier_rules)
    with pytest.raises(errors.Problem, match="taken back before they were confirmed"):
        kernel.run("keep")
    assert not kernel.kept_rules.exists()


def test_rules_change_nothing_without_a_timer_or_where_nftables_refuses_them(kernel, monkeypatch):
    def refuse(*_: object) -> int:
        sys.exit("no timer")

    kernel.table.write_text(OLD)
    with monkeypatch.context() as patch:
        patch.setitem(onhost_fake_systemd.PROGRAMS, "systemd-run", refuse)
        with pytest.raises(errors.Problem, match="failed: no timer"):
            kernel.run("try")
    assert kernel.now == OLD
    kernel.rules.write_text("bad")
    with pytest.raises(errors.Problem, match="failed: Error: syntax error"):
        kernel.run("try")
    assert (kernel.now, kernel.systemd.calls[-1]) == (OLD, STOP_TIMER)


def test_two_deploys_at_once_go_back_to_rules_that_somebody_confirmed(kernel):
    kernel.table.write_text(OLD)
    assert (kernel.run("try", "try", "back"), kernel.now) == (0, OLD)
    # So it is when the second one's rules are refused.
    kernel.run("try")
    kernel.rules.write_text("bad")
    with pytest.raises(errors.Problem):
        kernel.run("try")
    assert kernel.now == OLD
    # The next try starts afresh.
    kernel.rules.write_text(NEW)
    kernel.table.write_text("")
    assert (kernel.run("try", "back"), kernel.now) == (0, "")


def test_what_was_known_of_the_rules_comes_back_with_them(kernel):
    kernel.run("try", "keep")
    kernel.rules.write_text("table inet lockstep { newer }\n")
    kernel.run("try", "back")
    assert kernel.now == kernel.seen_table() == NEW
    kernel.table.write_text(NEW + "accept\n")
    kernel.run("try", "back")
    assert kernel.seen_table() == "other rules"


def test_the_reader_sees_rules_that_somebody_changed_by_hand(kernel):
    # What another program loaded is not taken for the kept ones.
    kernel.kept_rules.write_text(NEW)
    kernel.table.write_text(NEW)
    assert kernel.seen_table() == "other rules"
    # A flush of all tables, and a host without nftables.
    for file in (kernel.kept_rules, kernel.table):
        file.unlink()
    assert kernel.seen_table() is None
    kernel.run("try")
    # The next boot would load none.
    assert kernel.seen_table() == ""
    kernel.run("keep")
    assert kernel.seen_table() == NEW
    kernel.table.write_text(NEW + "accept\n")
    assert kernel.seen_table() == "other rules"
    kernel.table.write_text(NEW)
    kernel.kept_rules.write_text(OLD)
    assert kernel.seen_table() == OLD


NEW_PLAN = f"# {ownership.MARK}\nnetwork: {{new}}\n"
OLD_PLAN = f"# {ownership.MARK}\nnetwork: {{old}}\n"
ADDRESSES = [
    {"local": "192.168.1.10", "prefixlen": 24, "scope": "global"},
    {"local": "fe80::1", "prefixlen": 64, "scope": "link"},
]
LINKS = [
    {"ifname": "lo", "mtu": 65536, "addr_info": [{"local": "127.0.0.1", "prefixlen": 8}]},
    {"ifname": "enP7s7", "mtu": 1500, "addr_info": ADDRESSES},
]
STOP_LINK_TIMER = "systemctl stop -- lockstep-fabric-back.timer"
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

    def attempt(self, text: str = NEW_PLAN, *words: str) -> int:
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
    assert stop == STOP_LINK_TIMER
    assert "--on-active=40" in armed_timer and armed_timer.endswith("/lockstep fabric back")
    assert link.file_on_trial.read_text() == NEW_PLAN
    assert link.file_on_trial.stat().st_mode & 0o777 == 0o600
    # A reboot now empties /run, and with it the trial.
    assert not link.file.exists()
    assert (link.run("keep"), link.run("back")) == (0, 0)
    assert (link.file.read_text(), link.file.stat().st_mode & 0o777) == (NEW_PLAN, 0o600)
    assert not link.file_on_trial.exists()


@pytest.mark.parametrize("earlier_text", [None, OLD_PLAN])
def test_what_nobody_confirms_is_taken_back_with_the_addresses_of_before(earlier_text, link):
    if earlier_text:
        link.file.write_text(earlier_text)
    link.attempt()
    # A second deploy tries too, and is not confirmed either.
    link.attempt(NEW_PLAN.replace("new", "newer"))
    assert link.commands
    assert link.run("back") == 0
    assert (link.file.read_text() if link.file.exists() else None) == earlier_text
    assert not link.file_on_trial.exists()
    assert link.commands == [
        "netplan apply",
        "ip link set dev enP7s7 mtu 1500",
        "ip address replace 192.168.1.10/24 dev enP7s7",
        "ip route replace default via 192.168.1.1 dev enP7s7 metric 100",
        STOP_LINK_TIMER,
    ]
    with pytest.raises(errors.Problem, match="was taken back: no new login came through"):
        link.run("keep")


def test_a_file_that_netplan_does_not_take_changes_nothing(link):
    link.file.write_text(OLD_PLAN)
    with pytest.raises(errors.Problem, match="failed: Error in network definition"):
        link.attempt(NEW_PLAN.replace("new", "bad"))
    assert (link.file.read_text(), link.commands) == (OLD_PLAN, ["netplan generate"])


def test_nvidias_own_file_is_replaced_only_where_the_inventory_takes_it_over(link):
    # As DGX OS' instructions for two Sparks write it.
    text = "network:\n  version: 2\n  ethernets:\n    enp1s0f0np0:\n      link-local: [ipv4]\n"
    link.file.write_text(text)
    with pytest.raises(errors.Problem, match=r"40-cx7.yaml was not made by Lockstep \(written "):
        link.attempt()
    assert (link.file.read_text(), link.commands) == (text, [])
    assert link.attempt(NEW_PLAN, "--adopt") == 0
    assert link.file_on_trial.read_text() == NEW_PLAN
    assert link.run("back") == 0
    assert link.file.read_text() == text
