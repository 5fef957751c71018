"""Backups to the next Spark: its door, the way there, the keys, and who else sees them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from a_spark import pins_for, spark
from monitored import written
from tools import run

from lockstep.cli.remove import question
from lockstep.core.errors import InventoryError
from lockstep.host.intended import Intended
from lockstep.inventory.cluster_join import joined
from lockstep.system.accounts import account_commands, ours
from lockstep.units.backup_twin import CLOSED, DOOR, PRIVATE, UNIT, WAY

TWIN = {"enabled": True, "to": ("twin",)}


def hosts(*backup: dict[str, Any], **data: Any) -> list[Intended]:
    """Hosts on one fast link, with these keys of backups."""
    plans = [
        spark(f"spark{number}", fabric_address=f"10.77.0.{number}", backup=keys, **data)
        for number, keys in enumerate(backup, 1)
    ]
    return [Intended(plan, pins_for(plan)) for plan in joined(plans, "site.py")]


def settings(text: str) -> dict[str, str]:
    """Keyword → value of a configuration of ssh or sshd."""
    lines = (line.split(None, 1) for line in text.splitlines())
    return {words[0]: words[1] for words in lines if len(words) == 2 and words[0] != "#"}


def test_each_host_backs_up_to_the_next_and_the_last_to_the_first() -> None:
    every = hosts(TWIN, TWIN, TWIN)
    assert [this.plan.backups.twin.name for this in every if this.plan.backups.twin] == [
        *("spark2", "spark3", "spark1")
    ]
    assert [this.plan.backups.of.name for this in every if this.plan.backups.of] == [
        *("spark3", "spark1", "spark2")
    ]


def test_restic_is_told_the_way_by_its_name() -> None:
    one, two = hosts({"enabled": True, "to": ("/mnt/nas", "twin")}, {"port": 7000})
    to = json.loads(written(one, "backup.json"))["to"]
    assert to == ["/mnt/nas/spark1", "sftp:spark2.lockstep:/spark1"]
    way = settings(written(one, WAY))
    assert (way["Host"], way["HostName"], way["Port"]) == ("spark2.lockstep", "10.77.0.2", "7000")
    assert way["IdentityFile"] == PRIVATE and way["StrictHostKeyChecking"] == "yes"
    assert written(one, DOOR) == written(one, UNIT) == written(two, WAY) == ""


def test_the_door_is_open_to_one_host_one_account_one_key_and_one_folder() -> None:
    one, two = hosts(TWIN, {})
    door = settings(written(two, DOOR))
    (key,) = [key for key in two.shared_keys if key.hosts[0] == "spark1"]
    assert door["AuthorizedKeysFile"] == key.path
    assert door["ListenAddress"] == "10.77.0.2:7076"
    assert door["AllowUsers"] == "lockstep-backup@10.77.0.1"
    assert door["ForceCommand"] == "internal-sftp" and door["DisableForwarding"] == "yes"
    assert door["ChrootDirectory"] == "/var/lib/lockstep-backup"
    assert door["AuthenticationMethods"] == "publickey"
    unit = written(two, UNIT)
    assert "IPAddressDeny=any\nIPAddressAllow=10.77.0.1\n" in unit
    assert "chown --recursive lockstep-backup:lockstep-backup /var/lib/lockstep-backup/spark1" in (
        unit
    )
    assert UNIT in two.watching and UNIT not in one.watching
    rules = written(two, "firewall.nft")
    assert re.findall(r"saddr { (\S+) } tcp dport 7076 accept", rules) == ["10.77.0.1/32"]
    assert "7076" not in written(one, "firewall.nft")


def test_ssh_reads_the_way_as_it_is_meant(tmp_path: Path) -> None:
    one, _ = hosts(TWIN, {})
    file = tmp_path / "way"
    file.write_text(written(one, WAY))
    said = run(["ssh", "-G", "-F", file, "spark2.lockstep"]).stdout
    known = dict(line.split(None, 1) for line in said.splitlines() if " " in line)
    assert (known["hostname"], known["user"]) == ("10.77.0.2", "lockstep-backup")
    assert known["stricthostkeychecking"] == "true" and known["batchmode"] == "yes"
    assert known["hostkeyalias"] == "spark2.lockstep" and known["identityfile"] == PRIVATE


def test_a_key_stays_where_it_is_made_and_only_public_halves_are_carried() -> None:
    one, two = hosts(TWIN, {})
    assert one.shared_keys == two.shared_keys
    public, known = one.shared_keys
    assert (public.hosts, known.hosts) == (("spark1", "spark2"), ("spark2", "spark1"))
    assert public.make[-2:] == (PRIVATE, public.path) and PRIVATE not in public.take
    assert settings(written(one, WAY))["UserKnownHostsFile"] == known.path
    assert {key.mode for key in one.shared_keys} == {"0644"}


def test_the_account_is_there_for_a_twin_alone() -> None:
    one, two = hosts(TWIN, {})
    assert "lockstep-backup" not in [account.name for account in ours(one.plan)]
    account = ours(two.plan)[-1]
    nobody: dict[str, Any] = {"groups": {}, "accounts": {account.name: None}}
    [made] = account_commands([], [account], nobody)
    assert made[-3:] == ["--password", "*", "lockstep-backup"]
    assert "/usr/sbin/nologin" in made
    # Of an inventory that has no backups any more, too.
    assert question(one.plan, ())["accounts"]["lockstep-backup"] == "/var/lib/lockstep-backup"
    assert "userdel lockstep-backup" in CLOSED[-1]


@pytest.mark.parametrize(
    ("plans", "said"),
    [
        ([spark("a", fabric_address="10.0.0.1", backup=TWIN)], "a has no twin"),
        (
            [spark("a", backup=TWIN), spark("b", fabric_address="10.0.0.2")],
            "fabric_address is no IP address",
        ),
        (
            [spark("a", fabric_address="10.0.0.1", backup=TWIN), spark("b", fabric_address="b")],
            "a has no twin",
        ),
    ],
)
def test_a_host_without_a_twin_is_refused(plans: Any, said: str) -> None:
    with pytest.raises(InventoryError, match=said):
        joined(plans, "site.py")


def test_a_twin_that_no_backup_goes_to_is_none() -> None:
    # Off: nothing is asked of the other one.
    one, two = hosts({"to": ("twin",)}, {})
    assert one.plan.backups == two.plan.backups and one.shared_keys == ()
