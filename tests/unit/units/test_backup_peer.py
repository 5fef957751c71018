"""The nightly backup: its units, its place, and the way to the next Spark with its keys."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from a_spark import healthy, pins_for, spark
from monitored_spark import file_text, hosts_with
from tools import run, write_files

from lockstep import preflight
from lockstep.cli.remove import question
from lockstep.core.errors import InventoryError
from lockstep.deploy.plan import plan_hosts
from lockstep.fit import catalogue as catalogues
from lockstep.inventory.cluster_join import join_clusters
from lockstep.resources import accounts
from lockstep.system.accounts import system_accounts
from lockstep.units.backup_peer import CLOSED, LISTENER, PRIVATE, UNIT, WAY
from lockstep.units.backup_unit import PASSWORD, one_disk_finding

PEER = {"enabled": True, "to": ("peer",)}


def settings(text: str) -> dict[str, str]:
    """Keyword → value of a configuration of ssh or sshd."""
    lines = (line.split(None, 1) for line in text.splitlines())
    return {words[0]: words[1] for words in lines if len(words) == 2 and words[0] != "#"}


def test_each_host_backs_up_to_the_next_and_the_last_to_the_first() -> None:
    backups = [state.plan.backups for state in hosts_with("backup", PEER, PEER, PEER)]
    peers = [(item.peer.name, item.of.name) for item in backups if item.peer and item.of]
    assert peers == [("spark-2", "spark-3"), ("spark-3", "spark-1"), ("spark-1", "spark-2")]


def test_restic_is_told_the_way_by_its_name_and_ssh_reads_it_as_it_is_meant(tmp_path: Path) -> None:
    two_places = {"enabled": True, "to": ("/mnt/nas", "peer")}
    first, second = hosts_with("backup", two_places, {"port": 7000})
    to = json.loads(file_text(first, "backup.json"))["to"]
    assert to == ["/mnt/nas/spark-1", "sftp:spark-2.lockstep:/spark-1"]
    file = tmp_path / "way"
    file.write_text(file_text(first, WAY))
    output = settings(run(["ssh", "-G", "-F", file, "spark-2.lockstep"]).stdout)
    assert output.items() >= {
        *{"hostname": "10.77.0.2", "port": "7000", "user": "lockstep-backup"}.items(),
        *{"identityfile": PRIVATE, "hostkeyalias": "spark-2.lockstep"}.items(),
        *{"stricthostkeychecking": "true", "batchmode": "yes"}.items(),
    }
    assert not (file_text(first, LISTENER) + file_text(first, UNIT) + file_text(second, WAY))


def test_the_listener_is_open_to_one_host_one_account_one_key_and_one_folder() -> None:
    first, second = hosts_with("backup", PEER, {})
    listener = settings(file_text(second, LISTENER))
    (key,) = [key for key in second.shared_keys if key.hosts[0] == "spark-1"]
    assert listener["AuthorizedKeysFile"] == key.path
    assert listener["ListenAddress"] == "10.77.0.2:7076"
    assert listener["AllowUsers"] == "lockstep-backup@10.77.0.1"
    assert listener["ForceCommand"] == "internal-sftp" and listener["DisableForwarding"] == "yes"
    assert listener["ChrootDirectory"] == "/var/lib/lockstep-backup"
    assert listener["AuthenticationMethods"] == "publickey"
    assert "IPAddressDeny=any\nIPAddressAllow=10.77.0.1\n" in file_text(second, UNIT)
    assert UNIT in second.watch_units and UNIT not in first.watch_units
    rules = file_text(second, "firewall.nft")
    assert re.findall(r"saddr { (\S+) } tcp dport 7076 accept", rules) == ["10.77.0.1/32"]
    assert "7076" not in file_text(first, "firewall.nft")


def test_a_key_stays_where_it_is_made_and_only_public_halves_are_carried() -> None:
    first, second = hosts_with("backup", PEER, {})
    assert first.shared_keys == second.shared_keys
    public, known_keys = first.shared_keys
    assert (public.hosts, known_keys.hosts) == (("spark-1", "spark-2"), ("spark-2", "spark-1"))
    assert public.make[-2:] == (PRIVATE, public.path) and PRIVATE not in public.take
    assert settings(file_text(first, WAY))["UserKnownHostsFile"] == known_keys.path
    assert {key.mode for key in first.shared_keys} == {"0644"}


def test_the_account_is_there_for_a_peer_alone() -> None:
    first, second = hosts_with("backup", PEER, {})
    assert "lockstep-backup" not in [account.name for account in system_accounts(first.plan)]
    account = system_accounts(second.plan)[-1]
    [command] = accounts.commands([], [account], {})
    assert command[-3:] == ["--password", "*", "lockstep-backup"]
    assert "/usr/sbin/nologin" in command
    # Of an inventory that has no backups any more, too.
    assert question(first.plan, ())["accounts"]["lockstep-backup"] == "/var/lib/lockstep-backup"
    assert "userdel lockstep-backup" in CLOSED[-1]


def test_a_host_without_a_peer_is_refused() -> None:
    first = spark("a", fabric_address="10.0.0.1", backup=PEER)
    for plans, message in (
        ([first], "a has no peer"),
        ([first, spark("b", fabric_address="b")], "a has no peer"),
        ([spark("a", backup=PEER), spark("b")], "fabric_address is no IP address"),
    ):
        with pytest.raises(InventoryError, match=message):
            join_clusters(plans, "site.py")


def test_a_host_has_them_where_the_inventory_asks_for_them(tmp_path: Path) -> None:
    password = {"command": ("pass", "backup")}
    nightly = {"enabled": True, "hour": 4, "to": ("/mnt/nas",), "password": password}
    bare, first = hosts_with("backup", {}, nightly)
    assert "lockstep-backup.service" not in bare.unit_files and "restic" not in bare.packages
    assert first.plan.backups == bare.plan.backups and first.shared_keys == ()
    assert "lockstep-backup.timer" in first.timers and "restic" in first.packages
    # A password by command comes with the deploy.
    assert [file.mode for file in first.uploaded_secrets if file.path == PASSWORD] == ["0600"]
    texts = {file.path.rpartition("/")[2]: file.text for file in first.all_files}
    assert "OnCalendar=*-*-* 04:00:00" in texts["lockstep-backup.timer"]
    units = {name: text for name, text in texts.items() if name.startswith("lockstep-backup.")}
    result = run(["systemd-analyze", "verify", *write_files(tmp_path, units)])
    assert "lockstep-backup" not in result.stderr, result.stderr


def codes(backup: dict[str, Any], **devices: int) -> tuple[list[str], list[str]]:
    """Codes of findings about the place of backups: of plan, and of preflight on these disks."""
    plan = spark(backup=backup)
    pins = pins_for(plan)
    facts = healthy(plan, time.time())
    folders = {path: 1 for path in preflight.questions(plan, pins)["paths"]} | devices
    facts["disks"] |= {path: {"device": at, "free": 10**13} for path, at in folders.items()}
    findings = (
        plan_hosts([plan], pins, catalogues.load()).findings,
        preflight.findings(plan, pins, facts),
    )
    first, second = ([item.code for item in group if "backup" in item.code] for group in findings)
    return first, second


def test_backups_on_the_disk_that_they_are_of_are_a_warning_at_each_deploy() -> None:
    on = {"enabled": True}
    assert codes({}) == ([], [])
    assert codes(on) == (["backup-here"], ["backup-here"])
    # Which disk a folder is on, the host alone knows.
    assert codes({**on, "to": ("/mnt/nas",)}) == ([], ["backup-here"])
    assert codes({**on, "to": ("/mnt/nas",)}, **{"/mnt/nas": 2}) == ([], [])
    assert codes({**on, "to": ("sftp:ann@nas.local:/sparks",)}) == ([], [])
    assert one_disk_finding(spark(backup=PEER)) is None
