"""Bring the firewall's rules into force without locking anybody out.

usage: firewall try --seconds N   load the new rules; they are reverted after N seconds
       firewall keep              a fresh login came through: they stay, also after a boot
       firewall back              revert them now
       firewall load              load the rules that were kept (at boot)
       firewall clear             remove them: everything is open

exit codes: 0 done, 1 nftables refused or the rules were reverted meanwhile, 2 wrong use
"""

from __future__ import annotations

import hashlib
import shutil
from functools import partial
from pathlib import Path

from lockstep.onhost.core import atomic_files, errors, layout, runner
from lockstep.onhost.system import confirm_or_revert

TABLE = ("inet", "lockstep")
#: Without counts of packets, which would make each look different.
LIST_TABLE = ("nft", "-s", "list", "table", *TABLE)
_EMPTY = "table inet lockstep\ndelete table inet lockstep\n"


class FirewallTrial(confirm_or_revert.Trial):
    """The table of one host; `paths` is another root only in unit tests."""

    def __init__(self, paths: layout.Paths) -> None:
        self._rules = paths.root / "etc/lockstep/firewall.nft"
        self.kept_file = paths.root / "etc/lockstep/firewall-kept.nft"
        self._record = paths.run / "firewall.json"
        self._record_before = paths.run / "firewall-before.json"
        target_path, lock = paths.run / "firewall-before.nft", self._record.with_suffix(".lock")
        message = "the firewall's new rules were taken back: nobody confirmed them"
        super().__init__("firewall", target_path, lock, message)

    def load_on_trial(self, seconds: int) -> None:
        """Load the new rules, with a timer that reverts them unless somebody keeps them."""
        self.apply_with_revert_timer(seconds, partial(self._load_rules, self._rules))

    def keep_rules(self) -> None:
        """Keep the rules of `load_on_trial`; raise Problem if they were reverted meanwhile."""
        self.stop_revert_timer()
        if not self.is_as_loaded(_listed_table()):
            raise errors.Problem(
                "the new rules were taken back before they were confirmed. Deploy again"
            )
        atomic_files.write(self.kept_file, self._rules.read_text(encoding="utf-8"))
        self.backup.unlink(missing_ok=True)
        self._record_before.unlink(missing_ok=True)

    def load_kept_rules(self) -> None:
        """Load the rules that were kept."""
        self._load_rules(self.kept_file)

    def remove_own_rules(self) -> None:
        """Remove all rules of ours."""
        runner.run_or_raise("nft", *_EMPTY.replace("\n", "; ").split())
        self._record.unlink(missing_ok=True)

    def is_as_loaded(self, table: str) -> bool:
        """Tell whether a listed table is as the last load made it."""
        record = atomic_files.read_json(self._record)
        return bool(record and record["listing"] == _digest(table))

    def store_state(self) -> None:
        """Store the rules in force and their record, so that manual changes stay known as such."""
        self._record_before.unlink(missing_ok=True)
        if self._record.exists():
            shutil.copyfile(self._record, self._record_before)
        atomic_files.write(self.backup, _EMPTY + _listed_table())

    def restore_state(self) -> None:
        """Restore the stored rules and their record."""
        runner.run_or_raise("nft", "-f", str(self.backup))
        self.backup.unlink()
        self._record.unlink(missing_ok=True)
        if self._record_before.exists():
            self._record_before.replace(self._record)

    def _load_rules(self, file: Path) -> None:
        runner.run_or_raise("nft", "-f", str(file))
        atomic_files.write_json(self._record, {"listing": _digest(_listed_table())})


def _listed_table() -> str:
    """Return the table as the kernel has it, or ""."""
    result = runner.run(LIST_TABLE)
    return result.stdout if result.returncode == 0 else ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Run the command line; see the module's docstring."""
    actions = {
        "try": "load the new rules for some seconds",
        "keep": "let them stay",
        "back": "take them back",
        "load": "load the rules that were kept",
        "clear": "remove the rules",
    }
    options = confirm_or_revert.parse_trial_options(__doc__, argv, actions)
    firewall = FirewallTrial(paths or layout.Paths())
    with firewall.hold_trial_lock():
        if options.action == "try":
            firewall.load_on_trial(options.seconds)
        else:
            {
                "keep": firewall.keep_rules,
                "back": firewall.revert_change,
                "load": firewall.load_kept_rules,
                "clear": firewall.remove_own_rules,
            }[options.action]()
    return errors.EXIT_DONE
