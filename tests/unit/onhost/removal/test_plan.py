"""Things that go, stay or are unknown, on a host in a folder."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from onhost_fakes import FakeSystemd

from lockstep.onhost.core import layout, runner
from lockstep.onhost.records import ownership
from lockstep.onhost.removal import plan
from lockstep.onhost.removal.items import KINDS
from lockstep.resources.files import EVER_OURS

UNIT = "/etc/systemd/system/vllm.service"
REPOSITORY = Path(__file__).resolve().parents[4]
OWN = {
    "folders": ["/etc/lockstep", "/usr/local/lib/lockstep"],
    "files": list(EVER_OURS),
    "inside": ["/usr/local/lib/lockstep/environments/tools"],
}
INSTALLED = ("jq", "git", "earlyoom", "old")


@pytest.fixture(autouse=True)
def systemd(tmp_path_factory: pytest.TempPathFactory, monkeypatch) -> FakeSystemd:
    """A system without accounts of ours, whose dpkg has some packages."""
    systemd = FakeSystemd(tmp_path_factory.mktemp("host") / "systemd", monkeypatch)
    run_program = runner.run

    def run(argv: list[str], timeout: float = 0.0) -> subprocess.CompletedProcess[str]:
        if argv[0] == "systemctl":
            return run_program(argv, timeout)
        out, code = "", 1
        if argv[0] == "dpkg-query" and "-W" in argv:
            out, code = "".join(f"installed {name}\n" for name in INSTALLED), 0
        if "purge" in argv:
            out, code = "".join(f"Purg {name}\n" for name in argv[argv.index("purge") + 1 :]), 0
        return subprocess.CompletedProcess(argv, code, out, "")

    monkeypatch.setattr(runner, "run", run)
    monkeypatch.setattr(ownership, "_output_or_empty", lambda *_: "")
    return systemd


@pytest.fixture
def paths(tmp_path: Path) -> layout.Paths:
    root = tmp_path
    write(root, UNIT, f"# {ownership.MARK}\n")
    write(root, "/etc/systemd/system/mine.service", "[Service]\n")
    write(root, "/etc/sudoers.d/lockstep", f"# {ownership.MARK}\n")
    write(root, "/data/scripts/llm/switch.sh", f"#!/bin/sh\n# {ownership.MARK}\n")
    write(root, "/data/scripts/mine.sh", "#!/bin/sh\n")
    write(root, "/etc/lockstep/gateway/keys.json", "{}")
    write(root, "/etc/lockstep/models.json", "{}")
    write(root, "/usr/local/lib/lockstep/__main__.py", "")
    write(root, "/opt/lockstep/engines/store/x", "")
    write(root, "/opt/lockstep/engines/notes.txt", "mine")
    write(root, "/proc/sys/vm/swappiness", "10\n")
    write(root, "/data/models/huggingface/lockstep-fetched/org--a@" + 40 * "a", "")
    write(root, "/data/models/huggingface/hub/models--org--a/x", "")
    write(root, "/data/models/huggingface/hub/models--org--theirs/x", "")
    baseline = {
        "paths": {"/data": "folder 0755 root root", "/data/scripts/llm": None},
        "accounts": {},
        "groups": {},
        "sysctls": {"vm.swappiness": "60"},
    }
    write(root, "/var/lib/lockstep-deploy/found.json", json.dumps(baseline))
    package_record = {"packages": ["jq", "earlyoom"], "accounts": {}, "earlier_packages": ["git"]}
    write(root, "/var/lib/lockstep-deploy/packages.json", json.dumps(package_record))
    return layout.Paths(root)


def write(root: Path, path: str, text: str) -> None:
    at = root / path.lstrip("/")
    at.parent.mkdir(parents=True, exist_ok=True)
    at.write_text(text)


def removal_plan(
    paths: layout.Paths, keep: tuple[str, ...] = (), **request_fields: Any
) -> plan.RemovalPlan:
    request = {
        "keep": keep,
        "scripts": "/data/scripts",
        "engines": "/opt/lockstep/engines",
        "hub_cache": "/data/models/huggingface",
        "packages": {"jq": "", "git": "", "earlyoom": "", "curl": ""},
        "accounts": {"nobody-knows": ownership.HOME},
        "group": "nobody-knows",
        "folders": {},
        "own": OWN,
        **request_fields,
    }
    return plan.make_removal_plan(paths, None, plan.RemovalSettings(**request))


def names(removal: plan.RemovalPlan, kind: str) -> list[str]:
    return [item.name for item in removal.goes if item.kind == kind]


def test_what_is_ours_goes_and_what_is_not_stays(paths: layout.Paths) -> None:
    removal = removal_plan(paths)
    files = ["/data/scripts/llm/switch.sh", "/etc/sudoers.d/lockstep", UNIT]
    assert names(removal, "file") == files
    assert names(removal, "unit") == ["vllm.service"]
    assert names(removal, "package") == ["jq", "earlyoom"]
    assert [(item.name, item.detail) for item in removal.goes if item.kind == "setting"] == [
        ("vm.swappiness", "60")
    ]
    assert "/etc/lockstep" in names(removal, "content")
    # Others' files may lie in a folder of which nobody noted that it was not there.
    assert "/opt/lockstep/engines/store" in names(removal, "content")
    assert "/opt/lockstep/engines" not in names(removal, "content")
    assert names(removal, "weights") == ["org/a@" + 40 * "a"]
    stays_text = " ".join(stay.name for stay in removal.stays)
    assert (
        "models--org--theirs" in stays_text
        and "packages git" in stays_text
        and "packages curl" in stays_text
    )
    assert names(removal, "folder") == [
        *("/data/models/huggingface/lockstep-fetched", "/data/scripts/llm")
    ]
    assert removal.unknown == []


THEIRS = (
    "/etc/ssl/private/my-lockstep.key",
    "/etc/nginx/sites-available/lockstep",
    "/etc/letsencrypt/renewal/lockstep.example.com.conf",
    "/etc/cron.d/lockstep-report",
    "/etc/systemd/system/lockstep-mine.service",
    "/etc/apt/sources.list.d/lockstep.list",
    "/var/lib/lockstep-mine/notes",
    "/run/lockstep-mine/socket",
)


def test_a_name_makes_nothing_ours(paths: layout.Paths) -> None:
    earlier_items = removal_plan(paths).goes
    for path in THEIRS:
        write(paths.root, path, "mine")
    target_path = paths.root / "etc/nginx/sites-enabled/lockstep"
    target_path.parent.mkdir(parents=True)
    target_path.symlink_to("../sites-available/lockstep")
    wants_folder = paths.root / "etc/systemd/system/multi-user.target.wants"
    wants_folder.mkdir()
    (wants_folder / "lockstep-mine.service").symlink_to("/etc/systemd/system/lockstep-mine.service")
    assert removal_plan(paths).goes == earlier_items


def test_a_file_of_others_in_a_folder_of_ours_stays_with_its_folder(paths: layout.Paths) -> None:
    foreign_paths = [
        "/etc/lockstep/my-notes.txt",
        "/etc/lockstep/mine",
        "/etc/lockstep/secrets/their.pem",
    ]
    foreign_paths += [
        "/usr/local/lib/lockstep/lockstep/mine.txt",
        "/usr/local/lib/lockstep/mine.py",
    ]
    for path in foreign_paths:
        write(paths.root, path if path != "/etc/lockstep/mine" else f"{path}/x", "mine")
    ours_there = ["/etc/lockstep/docker/config.json", "/etc/lockstep/secrets/cluster-a.key"]
    ours_there += ["/usr/local/lib/lockstep/lockstep/onhost/x.py"]
    ours_there += ["/usr/local/lib/lockstep/environments/tools-1/bin/x"]
    ours_there += ["/usr/local/lib/lockstep/lockstep/gone/__pycache__/x.pyc"]
    for path in ours_there:
        write(paths.root, path, "")
    made_here = removal_plan(paths)
    goes = names(made_here, "content") + names(made_here, "program")
    removed_paths = [
        planned_item
        for planned_item in goes
        if planned_item.startswith(("/etc/lockstep", "/usr/local/lib/lockstep"))
    ]
    for path in foreign_paths:
        assert not [
            planned_item
            for planned_item in removed_paths
            if f"{path}/".startswith(f"{planned_item}/")
        ], path
        assert [
            planned_item.why for planned_item in made_here.stays if planned_item.name == path
        ] == ["Lockstep did not write it"]
    for path in [*ours_there, "/etc/lockstep/gateway/keys.json", "/etc/lockstep/models.json"]:
        assert [
            planned_item
            for planned_item in removed_paths
            if f"{path}/".startswith(f"{planned_item}/")
        ], path
    assert "/usr/local/lib/lockstep/__main__.py" in names(made_here, "program")


def test_a_link_by_which_our_unit_starts_goes_with_it(paths: layout.Paths) -> None:
    link = "/etc/systemd/system/timers.target.wants/vllm.service"
    (paths.root / link.lstrip("/")).parent.mkdir()
    (paths.root / link.lstrip("/")).symlink_to(UNIT)
    assert link in names(removal_plan(paths), "file")


def test_of_units_with_our_name_those_are_stopped_that_our_files_or_jobs_are(
    paths: layout.Paths, systemd: FakeSystemd
) -> None:
    write(paths.root, "/etc/systemd/system/lockstep-example@.service", f"# {ownership.MARK}\n")
    states = {
        "lockstep-mine.service": "enabled",
        "lockstep-job-apt.service": "transient",
        "lockstep-example@0.service": "static",
    }
    for name, state in states.items():
        systemd.unit(name, UnitFileState=state)
    assert sorted(names(removal_plan(paths), "unit")) == [
        *("lockstep-example@0.service", "lockstep-job-apt.service", "vllm.service")
    ]


def test_every_folder_that_systemd_makes_for_our_units_is_known() -> None:
    """Of each template of ours; a folder in one of these needs no name of its own."""
    bases = {"State": "/var/lib", "Cache": "/var/cache", "Runtime": "/run", "Logs": "/var/log"}
    directory_line = re.compile(r"^(State|Cache|Runtime|Logs)Directory=(\S+)$", re.MULTILINE)
    folders = {
        f"{bases[kind]}/{name}"
        for path in (REPOSITORY / "templates/units").glob("*.j2")
        for kind, name in directory_line.findall(path.read_text())
        if "{{" not in name
    }
    assert len(folders) > 5
    assert folders - {*ownership.HOMES, *ownership.MADE_FOR_UNITS, "/run/sshd"} == set()


def test_the_record_goes_last_and_the_program_before_it(paths: layout.Paths) -> None:
    goes = removal_plan(paths).goes
    assert [item.kind for item in goes[-2:]] == ["program", "record"]
    order = [list(KINDS).index(item.kind) for item in goes]
    assert order == sorted(order)
    kinds = [item.kind for item in goes]
    assert kinds.index("unit") < kinds.index("weights") < kinds.index("content")


def test_an_engine_folder_that_was_not_there_goes_whole(paths: layout.Paths) -> None:
    record = json.loads(paths.baseline.read_text())
    record["paths"]["/opt/lockstep/engines"] = None
    paths.baseline.write_text(json.dumps(record))
    assert "/opt/lockstep/engines" in names(removal_plan(paths), "content")


def test_what_is_kept_stays_with_the_record_of_before(paths: layout.Paths) -> None:
    own = "/var/lib/lockstep-deploy/backup/config"
    write(paths.root, own, "restic's")
    write(paths.root, f"{ownership.BACKUP_HOME}/spark1/config", "restic's")
    assert "/var/lib/lockstep-deploy" in names(removal_plan(paths), "record")
    removal = removal_plan(paths, keep=("weights", "data"))
    assert names(removal, "weights") == []
    assert not any(own.startswith(path) for path in names(removal, "record"))
    content = names(removal, "content")
    assert "/etc/lockstep/models.json" in content
    assert not any(path.startswith("/etc/lockstep/gateway") for path in content)
    assert "/etc/lockstep" not in content
    assert not [path for path in content if path.startswith("/var/lib/lockstep-deploy")]
    # Another Spark's backups.
    assert not [path for path in content if path.startswith(ownership.BACKUP_HOME)]
    assert ownership.BACKUP_HOME in names(removal_plan(paths), "content")
    assert not {"/var/lib/lockstep-deploy/found.json", "/var/lib/lockstep-deploy"} & set(
        names(removal, "record")
    )


def test_of_a_host_of_an_earlier_version_it_says_what_is_not_known(paths: layout.Paths) -> None:
    paths.baseline.unlink()
    removal = removal_plan(paths)
    assert names(removal, "setting") == [] and len(removal.unknown) >= 3
    assert any("curl" in line for line in removal.unknown)


@pytest.mark.parametrize(
    ("was", "detail"),
    [(None, ""), ("link 0777 root root", ""), ("file 0600 root adm", "file 0600 root adm")],
)
def test_what_was_replaced_returns(paths: layout.Paths, was: str | None, detail: str) -> None:
    write(paths.root, ownership.ADOPTED_FOLDER + UNIT, "theirs")
    record = json.loads(paths.baseline.read_text())
    record["paths"][UNIT] = was
    paths.baseline.write_text(json.dumps(record))
    removal = removal_plan(paths)
    assert ("original", UNIT, detail) in removal.goes and UNIT not in names(removal, "file")


def test_a_package_s_own_file_leaves_with_the_package_that_we_installed(
    paths: layout.Paths,
) -> None:
    [path] = ownership.CONFFILES
    write(paths.root, ownership.ADOPTED_FOLDER + path, "as shipped")
    write(paths.root, path, f"# {ownership.MARK}\n")
    assert path in names(removal_plan(paths), "file")
    package_record = json.loads(paths.packages.read_text())
    paths.packages.write_text(
        json.dumps({**package_record, "packages": ["jq"], "earlier_packages": ["earlyoom"]})
    )
    removal = removal_plan(paths)
    assert path in names(removal, "original") and path not in names(removal, "file")


ACCOUNTS = {"llm": ownership.HOME, "gate": ownership.GATEWAY_HOME, "peer": ownership.BACKUP_HOME}


@pytest.fixture
def accounts(paths: layout.Paths, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The record, of accounts: llm is a deploy's, gate was there, and ann got a group."""
    groups_by_account = {"llm": ["docker"], "gate": [], "ann": ["docker", "lockstep", "people"]}
    groups_by_account["peer"] = []
    monkeypatch.setattr(plan.original_state, "groups_of", groups_by_account.get)
    monkeypatch.setattr(plan.original_state, "members_of_group", lambda group: ["ann"])
    record = json.loads(paths.baseline.read_text())
    record["accounts"] = {"llm": None, "gate": [], "ann": [], "peer": []}
    record["groups"] = {"docker": [], "lockstep": None}
    paths.baseline.write_text(json.dumps(record))
    return dict(record)


@pytest.mark.parametrize(
    ("earlier_accounts", "keep", "goes"),
    [
        # Into people somebody else put ann, and lockstep goes with all its members.
        ({}, (), {"account": ["llm"], "group": ["lockstep"], "member": ["ann of docker"]}),
        ({"ann": ["docker"]}, (), {"account": ["llm"], "group": ["lockstep"], "member": []}),
        ({"lockstep": ["ann"]}, (), {"group": []}),
        ({"gate": None, "peer": None}, (), {"account": ["llm", "gate", "peer"]}),
        ({"gate": None, "peer": None}, ("weights",), {"account": ["gate", "peer"]}),
        ({"gate": None, "peer": None}, ("data",), {"account": ["llm"]}),
    ],
)
def test_accounts_groups_and_members_that_were_there_or_are_kept_stay(
    paths: layout.Paths,
    accounts: dict[str, Any],
    earlier_accounts: dict[str, Any],
    keep: tuple[str, ...],
    goes: dict[str, list[str]],
) -> None:
    for name, was in earlier_accounts.items():
        accounts["groups" if name == "lockstep" else "accounts"][name] = was
    paths.baseline.write_text(json.dumps(accounts))
    removal = removal_plan(paths, keep, accounts=ACCOUNTS, group="lockstep")
    assert {kind: names(removal, kind) for kind in goes} == goes
    stays_here = "account gate" in [stay.name for stay in removal.stays]
    assert stays_here == ("gate" not in names(removal, "account"))


def test_of_an_earlier_version_the_home_tells_whose_an_account_is(
    paths: layout.Paths, accounts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths.baseline.unlink()
    homes = {"llm": ownership.HOME, "gate": "/home/gate"}
    monkeypatch.setattr(ownership, "home_of", homes.get)
    removal = removal_plan(paths, accounts=ACCOUNTS, group="lockstep")
    assert names(removal, "account") == ["llm"] and names(removal, "member") == []


def test_the_fast_link_keeps_its_addresses_until_the_next_boot(paths: layout.Paths) -> None:
    def stays() -> bool:
        return any("fast link" in item.name for item in removal_plan(paths).stays)

    assert not stays()
    write(paths.root, "/etc/netplan/40-cx7.yaml", f"# {ownership.MARK}\n")
    assert "/etc/netplan/40-cx7.yaml" in names(removal_plan(paths), "file") and stays()
    # Of before it has others, and they are applied.
    write(paths.root, f"{ownership.ADOPTED_FOLDER}/etc/netplan/40-cx7.yaml", "theirs")
    assert not stays()
