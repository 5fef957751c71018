"""Things that go, stay or are unknown, on a host in a folder."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from onhost_fakes import FakeSystemd

from lockstep.onhost.core import layout, runner
from lockstep.onhost.records import ownership
from lockstep.onhost.removal import plan, remove
from lockstep.onhost.removal.actions import Actions
from lockstep.onhost.removal.items import KINDS, RemovalItem
from lockstep.resources.files import EVER_OURS

UNIT = "/etc/systemd/system/vllm.service"
REPOSITORY = Path(__file__).resolve().parents[4]
OWN = {
    "folders": ["/etc/lockstep", "/usr/local/lib/lockstep"],
    "files": list(EVER_OURS),
    "inside": ["/usr/local/lib/lockstep/environments/tools"],
}


@pytest.fixture(autouse=True)
def system(systemd, monkeypatch) -> FakeSystemd:
    """A system without accounts of ours, whose dpkg has some packages."""
    run_program = runner.run

    def run(argv: list[str], *limits: float, **more: Any):
        if argv[0] == "systemctl":
            return run_program(argv, *limits, **more)
        out = ""
        if argv[0] == "dpkg-query" and "-W" in argv:
            out = "installed jq\ninstalled git\ninstalled earlyoom\ninstalled old\n"
        if "purge" in argv:
            out = "".join(f"Purg {name}\n" for name in argv[argv.index("purge") + 1 :])
        return subprocess.CompletedProcess(argv, 0 if out else 1, out, "")

    monkeypatch.setattr(runner, "run", run)
    monkeypatch.setattr(ownership, "_output_or_empty", lambda *_: "")
    return systemd


BOOT_LINK = "/etc/systemd/system/timers.target.wants/vllm.service"
MARKED = f"# {ownership.MARK}\n"
CACHE = "/data/models/huggingface"
MARKED_FILES = (UNIT, "/etc/sudoers.d/lockstep", "/data/scripts/llm/switch.sh")
UNMARKED_FILES = f"""
/etc/systemd/system/mine.service /data/scripts/mine.sh /opt/lockstep/engines/notes.txt
/etc/lockstep/gateway/keys.json /etc/lockstep/models.json /usr/local/lib/lockstep/__main__.py
/opt/lockstep/engines/store/x {CACHE}/lockstep-fetched/org--a@{40 * "a"}
{CACHE}/hub/models--org--a/x {CACHE}/hub/models--org--others/x /proc/sys/vm/swappiness
""".split()


@pytest.fixture
def paths(tmp_path) -> layout.Paths:
    paths = layout.Paths(tmp_path / "host")
    for path in MARKED_FILES:
        write(paths, path, MARKED)
    for path in UNMARKED_FILES:
        write(paths, path)
    link = paths.root / BOOT_LINK[1:]
    link.parent.mkdir()
    link.symlink_to(UNIT)
    paths.baseline.parent.mkdir(parents=True)
    found = {"/data": "folder 0755 root root", "/data/scripts/llm": None}
    settings = {"vm.swappiness": "60"}
    change(paths.baseline, paths=found, accounts={}, groups={}, sysctls=settings)
    packages = ["jq", "earlyoom"]
    change(paths.packages, packages=packages, accounts={}, earlier_packages=["git"])
    return paths


def change(record: Path, **parts: Any) -> None:
    """Replace parts of a record of the deploy."""
    earlier_parts = json.loads(record.read_text()) if record.exists() else {}
    record.write_text(json.dumps({**earlier_parts, **parts}))


def note_earlier_path(paths: layout.Paths, path: str, was: str | None) -> None:
    """Note what was at a path before the first deploy."""
    change(paths.baseline, paths={**json.loads(paths.baseline.read_text())["paths"], path: was})


def write(paths: layout.Paths, path: str, text: str = "mine") -> None:
    at = paths.root / path.lstrip("/")
    at.parent.mkdir(parents=True, exist_ok=True)
    at.write_text(text)


def removal_plan(paths: layout.Paths, keep: tuple[str, ...] = (), **more: Any) -> plan.RemovalPlan:
    request = {
        "keep": keep,
        "scripts": "/data/scripts",
        "engines": "/opt/lockstep/engines",
        "hub_cache": CACHE,
        "packages": dict.fromkeys(("jq", "git", "earlyoom", "curl"), ""),
        "accounts": {"nobody-knows": ownership.HOME},
        "group": "nobody-knows",
        "folders": {},
        "own": OWN,
        **more,
    }
    return plan.make_removal_plan(paths, None, plan.RemovalSettings(**request))


def names(removal: plan.RemovalPlan, kind: str) -> list[str]:
    return [item.name for item in removal.goes if item.kind == kind]


def test_what_is_ours_goes_and_what_is_not_stays(paths):
    removal = removal_plan(paths)
    assert names(removal, "file") == sorted([*MARKED_FILES, BOOT_LINK])
    assert names(removal, "unit") == ["vllm.service"]
    assert names(removal, "package") == ["jq", "earlyoom"]
    assert ("setting", "vm.swappiness", "60") in removal.goes
    assert names(removal, "weights") == ["org/a@" + 40 * "a"]
    assert names(removal, "folder") == [f"{CACHE}/lockstep-fetched", "/data/scripts/llm"]
    assert "/etc/lockstep" in names(removal, "content")
    stays_text = " ".join(stay.name for stay in removal.stays)
    for name in ("models--org--others", "packages git", "packages curl"):
        assert name in stays_text
    assert removal.unknown == []
    # The record goes last, and the program before it.
    kinds = [item.kind for item in removal.goes]
    assert kinds[-2:] == ["program", "record"] and kinds == sorted(kinds, key=list(KINDS).index)
    assert kinds.index("unit") < kinds.index("weights") < kinds.index("content")


def test_an_engine_folder_goes_whole_only_where_it_was_not_there(paths):
    """Others' files may lie in a folder of which nobody noted that it was not there."""
    engines = "/opt/lockstep/engines"
    content = names(removal_plan(paths), "content")
    assert f"{engines}/store" in content and engines not in content
    note_earlier_path(paths, engines, None)
    assert engines in names(removal_plan(paths), "content")


FOREIGN = """
/etc/ssl/private/my-lockstep.key /etc/nginx/sites-available/lockstep
/etc/systemd/system/lockstep-mine.service /etc/apt/sources.list.d/lockstep.list
/var/lib/lockstep-mine/notes /run/lockstep-mine/socket
"""


def test_a_name_makes_nothing_ours(paths):
    earlier_items = removal_plan(paths).goes
    for path in FOREIGN.split():
        write(paths, path)
    wants_folder = paths.root / "etc/systemd/system/multi-user.target.wants"
    wants_folder.mkdir()
    (wants_folder / "lockstep-mine.service").symlink_to("/etc/systemd/system/lockstep-mine.service")
    assert removal_plan(paths).goes == earlier_items


FOREIGN_INSIDE = """
/etc/lockstep/my-notes.txt /etc/lockstep/mine /etc/lockstep/secrets/a.pem
/usr/local/lib/lockstep/lockstep/mine.txt /usr/local/lib/lockstep/mine.py
"""
OURS_INSIDE = """
/etc/lockstep/docker/config.json /etc/lockstep/secrets/cluster-a.key /etc/lockstep/models.json
/etc/lockstep/gateway/keys.json /usr/local/lib/lockstep/lockstep/onhost/x.py
/usr/local/lib/lockstep/environments/tools-1/bin/x
/usr/local/lib/lockstep/lockstep/gone/__pycache__/x.pyc /usr/local/lib/lockstep/__main__.py
"""


def test_a_file_of_others_in_a_folder_of_ours_stays_with_its_folder(paths):
    for path in (FOREIGN_INSIDE + OURS_INSIDE).split():
        write(paths, f"{path}/x" if path.endswith("/mine") else path)
    removal = removal_plan(paths)
    goes = [*names(removal, "content"), *names(removal, "program")]
    removed_paths = tuple(f"{path}/" for path in goes if path.startswith(tuple(OWN["folders"])))
    for path in FOREIGN_INSIDE.split():
        assert not f"{path}/".startswith(removed_paths), path
        assert (path, "Lockstep did not write it") in removal.stays
    for path in OURS_INSIDE.split():
        assert f"{path}/".startswith(removed_paths), path
    assert "/usr/local/lib/lockstep/__main__.py" in names(removal, "program")


def test_of_units_with_our_name_those_are_stopped_that_our_files_or_jobs_are(paths, systemd):
    write(paths, "/etc/systemd/system/lockstep-example@.service", MARKED)
    own_units = ["lockstep-example@0.service", "lockstep-job-apt.service"]
    for name, state in zip(own_units, ("static", "transient"), strict=True):
        systemd.unit(name, UnitFileState=state)
    systemd.unit("lockstep-mine.service", UnitFileState="enabled")
    assert sorted(names(removal_plan(paths), "unit")) == [*own_units, "vllm.service"]


def test_every_folder_that_systemd_makes_for_our_units_is_known():
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


def test_what_is_kept_stays_with_the_record_of_before(paths):
    state, own = "/var/lib/lockstep-deploy", "/var/lib/lockstep-deploy/backup/config"
    write(paths, own, "restic's")
    # Another Spark's backups.
    write(paths, f"{ownership.BACKUP_HOME}/spark1/config", "restic's")
    whole_plan = removal_plan(paths)
    assert state in names(whole_plan, "record")
    assert ownership.BACKUP_HOME in names(whole_plan, "content")
    removal = removal_plan(paths, keep=("weights", "data"))
    content, records = names(removal, "content"), names(removal, "record")
    assert names(removal, "weights") == []
    assert "/etc/lockstep/models.json" in content and "/etc/lockstep" not in content
    kept_paths = ("/etc/lockstep/gateway", state, ownership.BACKUP_HOME)
    assert not [path for path in content if path.startswith(kept_paths)]
    assert not [path for path in records if own.startswith(path) or path.endswith("/found.json")]


@pytest.mark.parametrize(
    ("was", "detail"),
    [(None, ""), ("link 0777 root root", ""), ("file 0600 root adm", "file 0600 root adm")],
)
def test_what_was_replaced_returns(paths, was, detail):
    write(paths, ownership.ADOPTED_FOLDER + UNIT)
    note_earlier_path(paths, UNIT, was)
    removal = removal_plan(paths)
    assert ("original", UNIT, detail) in removal.goes and UNIT not in names(removal, "file")


def test_a_package_s_own_file_leaves_with_the_package_that_we_installed(paths):
    [path] = ownership.CONFFILES
    write(paths, ownership.ADOPTED_FOLDER + path, "as shipped")
    write(paths, path, MARKED)
    assert path in names(removal_plan(paths), "file")
    change(paths.packages, packages=["jq"], earlier_packages=["earlyoom"])
    removal = removal_plan(paths)
    assert path in names(removal, "original") and path not in names(removal, "file")


ACCOUNTS = {"llm": ownership.HOME, "gate": ownership.GATEWAY_HOME, "peer": ownership.BACKUP_HOME}


@pytest.fixture
def accounts(monkeypatch) -> dict[str, Any]:
    """The record, of accounts: llm is a deploy's, gate was there, and ann got a group."""
    groups = {"llm": ["docker"], "ann": ["docker", "lockstep", "people"], "gate": [], "peer": []}
    monkeypatch.setattr(plan.original_state, "groups_of", groups.get)
    monkeypatch.setattr(plan.original_state, "members_of_group", lambda group: ["ann"])
    earlier_accounts = {"llm": None, "gate": [], "ann": [], "peer": []}
    return {"accounts": earlier_accounts, "groups": {"docker": [], "lockstep": None}}


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
    paths, accounts, earlier_accounts, keep, goes
):
    for name, was in earlier_accounts.items():
        accounts["groups" if name == "lockstep" else "accounts"][name] = was
    change(paths.baseline, **accounts)
    removal = removal_plan(paths, keep, accounts=ACCOUNTS, group="lockstep")
    assert {kind: names(removal, kind) for kind in goes} == goes
    staying = {stay.name for stay in removal.stays}
    assert ("account gate" in staying) != ("gate" in names(removal, "account"))


@pytest.mark.usefixtures("accounts")
def test_of_an_earlier_version_the_home_tells_whose_an_account_is_and_much_is_not_known(
    paths, monkeypatch
):
    paths.baseline.unlink()
    homes = {"llm": ownership.HOME, "gate": "/home/gate"}
    monkeypatch.setattr(ownership, "home_of", homes.get)
    removal = removal_plan(paths, accounts=ACCOUNTS, group="lockstep")
    assert names(removal, "account") == ["llm"] and names(removal, "member") == []
    assert names(removal, "setting") == [] and len(removal.unknown) >= 3
    assert any("curl" in line for line in removal.unknown)


def test_the_fast_link_keeps_its_addresses_until_the_next_boot(paths):
    path = "/etc/netplan/40-cx7.yaml"

    def stays() -> bool:
        return any("fast link" in item.name for item in removal_plan(paths).stays)

    assert not stays()
    write(paths, path, MARKED)
    assert path in names(removal_plan(paths), "file") and stays()
    # Of before it has others, and they are applied.
    write(paths, f"{ownership.ADOPTED_FOLDER}{path}")
    assert not stays()


REMOVALS = [RemovalItem(kind, f"/{kind}") for kind in ("content", "program", "record")]


def remove_items(paths, *items: RemovalItem) -> list[tuple[RemovalItem, str]]:
    """Do the actions of one kind; the failures."""
    return Actions(paths, None).remove_items_of_kind(items[0].kind, items)


@pytest.fixture
def bare(tmp_path) -> layout.Paths:
    """A host without anything."""
    return layout.Paths(tmp_path / "bare")


def test_where_something_stays_the_program_and_the_record_stay_until_the_next_run(
    bare, monkeypatch
):
    for item in REMOVALS:
        (bare.root / item.kind / "folder").mkdir(parents=True)

    def busy(*_: object) -> None:
        raise OSError(16, "Device or resource busy", "/a")

    with monkeypatch.context() as patch:
        patch.setattr("lockstep.onhost.removal.actions.shutil.rmtree", busy)
        [(item, why)] = remove._do_actions_in_order(Actions(bare, None), REMOVALS)
    assert item.name == "/content" and "/a: Device or resource busy" in why
    assert len(list(bare.root.iterdir())) == 3
    # Again, and once more where nothing is left.
    for _ in range(2):
        assert remove._do_actions_in_order(Actions(bare, None), REMOVALS) == []
        assert list(bare.root.iterdir()) == []


def test_a_folder_with_a_file_of_others_stays_and_a_setting_has_its_value_of_before(bare):
    file, setting = bare.root / "mine/x", bare.proc / "sys/vm/swappiness"
    for path in (file, setting):
        path.parent.mkdir(parents=True)
        path.write_text("10")
    assert remove_items(bare, RemovalItem("folder", "/mine")) == []
    assert remove_items(bare, RemovalItem("setting", "vm.swappiness", "60")) == []
    assert file.exists() and setting.read_text() == "60"


def test_a_unit_without_a_file_keeps_no_other_enabled(bare, systemd):
    file = bare.root / "etc/systemd/system/lockstep-a.service"
    file.parent.mkdir(parents=True)
    file.touch()
    units = [RemovalItem("unit", name) for name in (file.name, "lockstep-back.timer")]
    assert remove_items(bare, *units) == []
    assert f"systemctl disable -- {file.name}" in systemd.calls
    assert f"systemctl stop -- {file.name} lockstep-back.timer" in systemd.calls


@pytest.mark.parametrize("kind", ["file", "original"])
def test_addresses_of_before_are_applied_and_none_are_taken(bare, monkeypatch, kind):
    programs: list[str] = []

    def run(argv: list[str], *_: float, **__: object) -> subprocess.CompletedProcess[str]:
        programs.append(argv[0])
        return subprocess.CompletedProcess(argv, 0, "", "")

    monkeypatch.setattr("lockstep.onhost.removal.actions.runner.run", run)
    path = "/etc/netplan/40-cx7.yaml"
    own_file, copy = (
        bare.root / f"{folder}{path}"[1:] for folder in ("", ownership.ADOPTED_FOLDER)
    )
    for file, text in ((own_file, "ours"), (copy, "mine")):
        file.parent.mkdir(parents=True)
        file.write_text(text)
    assert remove_items(bare, RemovalItem(kind, path)) == []
    assert ("netplan" in programs) == own_file.exists() == (kind == "original")
    assert not own_file.exists() or own_file.read_text() == "mine"
