"""The program that loads the firewall: nobody is locked out, whenever it is cut off."""

from __future__ import annotations

import sys
from pathlib import Path

import onhost_fake_systemd
import pytest
from a_probe import program
from onhost_fakes import FakeSystemd

from lockstep.onhost.core import errors, layout
from lockstep.onhost.facts import firewall as facts
from lockstep.onhost.facts.reader_helpers import seal
from lockstep.onhost.system import firewall_trial

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
        self.systemd = systemd
        self.paths = layout.Paths(folder)
        self.rules = folder / "etc/lockstep/firewall.nft"
        self.kept_rules = folder / "etc/lockstep/firewall-kept.nft"
        self.table = folder / "table"
        self.rules.parent.mkdir(parents=True)
        self.rules.write_text(NEW)

    def run(self, *words: str) -> int:
        return firewall_trial.main(list(words), self.paths)

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
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    program(tmp_path / "bin", "nft", NFT.format(folder=tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    fake_kernel = Kernel(tmp_path, FakeSystemd(tmp_path / "systemd", monkeypatch))
    monkeypatch.setattr(layout, "Paths", lambda: fake_kernel.paths)
    return fake_kernel


def test_new_rules_are_loaded_with_a_timer_that_takes_them_back(kernel: Kernel) -> None:
    kernel.table.write_text(OLD)
    assert kernel.run("try", "--seconds", "90") == 0
    assert kernel.now == NEW
    armed_timer = next(line for line in kernel.systemd.calls if line.startswith("systemd-run"))
    assert "--on-active=90" in armed_timer and armed_timer.endswith("/lockstep firewall back")
    # Not yet for the next boot.
    assert not kernel.kept_rules.exists()


def test_the_timer_is_armed_before_the_rules_are_loaded(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        sys.exit("no timer")

    monkeypatch.setitem(onhost_fake_systemd.PROGRAMS, "systemd-run", refuse)
    with pytest.raises(errors.Problem, match="failed: no timer"):
        kernel.run("try", "--seconds", "90")
    assert kernel.now == ""


def test_rules_that_were_confirmed_stay_and_are_loaded_at_the_next_boot(kernel: Kernel) -> None:
    kernel.run("try", "--seconds", "90")
    assert kernel.run("keep") == 0
    assert kernel.kept_rules.read_text() == NEW
    assert kernel.systemd.calls[-1] == "systemctl stop -- lockstep-firewall-back.timer"
    kernel.table.unlink()
    assert kernel.run("load") == 0
    assert kernel.now == NEW


@pytest.mark.parametrize("earlier_rules", ["", OLD])
def test_taken_back_the_host_is_as_before(kernel: Kernel, earlier_rules: str) -> None:
    kernel.table.write_text(earlier_rules)
    kernel.run("try", "--seconds", "90")
    assert kernel.run("back") == 0
    assert kernel.now == earlier_rules
    assert kernel.run("back") == 0
    assert kernel.now == earlier_rules


def test_a_confirmation_that_comes_too_late_keeps_nothing(kernel: Kernel) -> None:
    kernel.run("try", "--seconds", "90")
    kernel.run("back")
    with pytest.raises(errors.Problem, match="taken back before they were confirmed"):
        kernel.run("keep")
    assert not kernel.kept_rules.exists()


def test_rules_that_nftables_refuses_change_nothing_and_leave_no_timer(kernel: Kernel) -> None:
    kernel.table.write_text(OLD)
    kernel.rules.write_text("bad")
    with pytest.raises(errors.Problem, match="failed: Error: syntax error"):
        kernel.run("try", "--seconds", "90")
    assert kernel.now == OLD
    assert kernel.systemd.calls[-1] == "systemctl stop -- lockstep-firewall-back.timer"


def test_two_deploys_at_once_both_keep_the_rules(kernel: Kernel) -> None:
    for action in (("try", "--seconds", "90"), ("try", "--seconds", "90"), ("keep",), ("keep",)):
        assert kernel.run(*action) == 0
    assert (kernel.now, kernel.kept_rules.read_text()) == (NEW, NEW)


def test_two_deploys_at_once_go_back_to_rules_that_somebody_confirmed(kernel: Kernel) -> None:
    kernel.table.write_text(OLD)
    for action in (("try", "--seconds", "90"), ("try", "--seconds", "90"), ("back",)):
        assert kernel.run(*action) == 0
    assert kernel.now == OLD
    # So it is when the second one's rules are refused.
    kernel.run("try", "--seconds", "90")
    kernel.rules.write_text("bad")
    with pytest.raises(errors.Problem):
        kernel.run("try", "--seconds", "90")
    assert kernel.now == OLD
    # The next try starts afresh.
    kernel.rules.write_text(NEW)
    kernel.table.write_text("")
    kernel.run("try", "--seconds", "90")
    kernel.run("back")
    assert kernel.now == ""


def test_cleared_the_host_is_open(kernel: Kernel) -> None:
    kernel.run("try", "--seconds", "90")
    kernel.run("keep")
    assert kernel.run("clear") == 0
    assert kernel.now == ""


def test_what_was_known_of_the_rules_comes_back_with_them(kernel: Kernel) -> None:
    kernel.run("try", "--seconds", "90")
    kernel.run("keep")
    kernel.rules.write_text("table inet lockstep { newer }\n")
    kernel.run("try", "--seconds", "90")
    kernel.run("back")
    assert kernel.now == NEW
    assert kernel.seen_table() == NEW
    kernel.table.write_text(NEW + "accept\n")
    kernel.run("try", "--seconds", "90")
    kernel.run("back")
    assert kernel.seen_table() == "other rules"


def test_the_reader_sees_rules_that_somebody_changed_by_hand(kernel: Kernel) -> None:
    assert kernel.seen_table() is None
    kernel.run("try", "--seconds", "90")
    # The next boot would load none.
    assert kernel.seen_table() == ""
    kernel.run("keep")
    assert kernel.seen_table() == NEW
    kernel.table.write_text(NEW + "accept\n")
    assert kernel.seen_table() == "other rules"
    kernel.table.write_text(NEW)
    kernel.kept_rules.write_text(OLD)
    assert kernel.seen_table() == OLD
    # A flush of all tables, and a host without nftables.
    kernel.table.write_text("")
    assert kernel.seen_table() is None


def test_rules_that_another_program_loaded_are_not_taken_for_the_kept_ones(kernel: Kernel) -> None:
    kernel.kept_rules.write_text(NEW)
    kernel.table.write_text(NEW)
    assert kernel.seen_table() == "other rules"
