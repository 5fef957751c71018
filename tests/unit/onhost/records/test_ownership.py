"""Things of Lockstep's and of others on a host: one judgement for all writers."""

from __future__ import annotations

import getpass
import grp
import hashlib
import json
import os
import subprocess
from pathlib import Path

import pytest
from a_probe import ask
from onhost_fakes import FakeSystemd

from lockstep.files import managed_file
from lockstep.inventory.settings import Settings
from lockstep.onhost.core import runner
from lockstep.onhost.records import ownership
from lockstep.system.folders import folders

USER = getpass.getuser()
GROUP = grp.getgrgid(os.getgid()).gr_name
THEIRS = "[Service]\nExecStart=/home/me/serve\n"
OURS = f"# {ownership.MARK} for model qwen. Do not edit.\n[Service]\n"
UNIT = "/etc/systemd/system/vllm.service"
GENERATIONS = "/var/lib/lockstep-deploy/generations"


class Root:
    """A host's file system in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def at(self, path: str) -> Path:
        return self.folder / path.lstrip("/")

    def write(self, path: str, text: str = THEIRS) -> Path:
        self.at(path).parent.mkdir(parents=True, exist_ok=True)
        self.at(path).write_text(text)
        return self.at(path)

    def record(self, number: int, *paths: str) -> None:
        document = {
            "number": number,
            "digest": str(number),
            "images": [],
            "engine": {"folder": "/opt/lockstep/engines"},
            "weights": {"cache_dir": "/data/models/huggingface/hub"},
            "files": [{"path": path} for path in paths],
        }
        self.write(f"{GENERATIONS}/{number:04}.json", json.dumps(document))

    def judge(self, *adopted_names: str) -> ownership.Ownership:
        return ownership.Ownership(adopted_names, self.folder)


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path / "root")


def test_nothing_there_is_nobodys_and_what_is_in_our_folders_is_ours(root: Root) -> None:
    for path in ("/etc/lockstep/models.json", "/usr/local/lib/lockstep/__main__.py"):
        root.write(path)
        assert root.judge().foreign_owner_of_file(path) == ""
    assert root.judge().foreign_owner_of_file(UNIT) == ""
    assert root.judge().owner_of_folder("/data/models", "0755", "root", "root") == ""


def test_a_folder_where_a_file_of_ours_belongs_is_in_the_way(root: Root) -> None:
    for path in ("/etc/lockstep/secrets/api-key", UNIT):
        root.at(path).mkdir(parents=True)
        assert root.judge().foreign_owner_of_file(path) == "a folder"


def test_a_file_by_hand_is_its_owners_with_the_day(root: Root) -> None:
    os.utime(root.write(UNIT), (1763683200, 1763683200))
    assert root.judge().foreign_owner_of_file(UNIT) == f"written 2025-11-21, of {USER}"


@pytest.mark.parametrize(
    "path",
    [
        "/etc/lockstep-old/x",
        "/data/scripts/lockstep.sh",
        "/usr/local/bin/uv",
        "/etc/default/earlyoom",
        "/etc/netplan/40-cx7.yaml",
        "/etc/sudoers.d/lockstep",
    ],
)
def test_a_name_that_only_looks_like_ours_is_not(root: Root, path: str) -> None:
    """removal/test_plan.py has more of them."""
    root.write(path)
    assert root.judge().foreign_owner_of_file(path).startswith("written ")


def test_the_list_of_apt_of_before_it_had_a_mark_is_known_by_what_was_here(root: Root) -> None:
    root.write(ownership.UNMARKED_FILE, "deb http://packages.example/ubuntu noble main\n")
    assert root.judge().foreign_owner_of_file(ownership.UNMARKED_FILE)
    for was, owner in (("file 0644 root root", "theirs"), (None, "ours")):
        baseline = {"paths": {ownership.UNMARKED_FILE: was}}
        root.write("/var/lib/lockstep-deploy/found.json", json.dumps(baseline))
        assert bool(root.judge().foreign_owner_of_file(ownership.UNMARKED_FILE)) == (
            owner == "theirs"
        )


def test_every_file_outside_our_folders_says_in_its_first_lines_whose_it_is() -> None:
    """Of all hosts that tests/render writes; nothing else would tell it from the owner's."""
    top = Path(__file__).resolve().parents[4] / "tests/render/golden"
    files = [path for host in top.iterdir() for path in host.rglob("*") if path.is_file()]
    outside = [
        path
        for path in files
        if not ownership.is_in_own_folder("/" + "/".join(path.parts[_deep(top) :]))
    ]
    assert len(outside) > 20
    assert [str(path) for path in outside if not ownership.is_marked(path)] == []


def _deep(top: Path) -> int:
    return len(top.parts) + 1


def test_the_mark_stands_in_the_first_lines_of_a_regular_file(root: Root) -> None:
    root.write("/data/scripts/a.sh", OURS)
    root.write("/data/scripts/b.sh", THEIRS + ownership.HEAD * " " + OURS)
    root.at("/data/scripts/c.sh").symlink_to("a.sh")
    judge = root.judge()
    verdicts = [judge.foreign_owner_of_file(f"/data/scripts/{name}.sh") for name in "abc"]
    assert verdicts[0] == ""
    assert verdicts[1].startswith("written ")
    assert verdicts[2] == "a link to a.sh"


def test_what_the_newest_record_has_is_ours_also_where_it_became_a_mask(root: Root) -> None:
    root.record(9, "/data/old.sh")
    root.record(10, UNIT)
    root.at(UNIT).parent.mkdir(parents=True)
    root.at(UNIT).symlink_to("/dev/null")
    root.write("/data/old.sh")
    judge = root.judge()
    assert judge.foreign_owner_of_file(UNIT) == ""
    # It was removed since; what is there now is somebody else's.
    assert judge.foreign_owner_of_file("/data/old.sh").startswith("written ")


def test_what_an_unfinished_deploy_wrote_is_ours_beside_what_is_on_record(root: Root) -> None:
    root.record(1, UNIT)
    root.write(UNIT)
    root.record(2, "/data/new.sh")
    newest = root.at(f"{GENERATIONS}/0002.json")
    newest.rename(newest.with_name("begun.json"))
    root.write("/data/new.sh")
    judge = root.judge()
    assert judge.foreign_owner_of_file(UNIT) == judge.foreign_owner_of_file("/data/new.sh") == ""


def test_a_damaged_record_is_none(root: Root) -> None:
    root.record(1, UNIT)
    root.write(f"{GENERATIONS}/0002.json", "{")
    root.write(UNIT)
    assert root.judge().foreign_owner_of_file(UNIT) == ""


@pytest.mark.parametrize("entry", [UNIT, "unit vllm.service", "unit vllm"])
def test_what_is_adopted_is_ours_and_a_copy_of_it_stays(root: Root, entry: str) -> None:
    root.write(UNIT)
    root.write("/etc/systemd/system/other.service")
    judge = root.judge(entry)
    assert judge.foreign_owner_of_file(UNIT) == ""
    assert judge.foreign_owner_of_file("/etc/systemd/system/other.service")
    judge.copy_before_adoption(UNIT)
    root.write(UNIT, OURS)
    judge.copy_before_adoption(UNIT)
    assert root.at(ownership.ADOPTED_FOLDER + UNIT).read_text() == THEIRS
    assert root.at(ownership.ADOPTED_FOLDER).stat().st_mode & 0o077 == 0


def test_a_link_into_our_folders_is_ours_and_uv_once_there_is_a_record(root: Root) -> None:
    uv = root.at(ownership.UV)
    uv.parent.mkdir(parents=True)
    uv.symlink_to("/opt/mine/uv")
    assert root.judge().foreign_owner_of_file(ownership.UV) == "a link to /opt/mine/uv"
    root.record(1)
    assert root.judge().foreign_owner_of_file(ownership.UV) == ""
    uv.unlink()
    uv.write_text("a binary")
    assert root.judge().foreign_owner_of_file(ownership.UV).startswith("written ")


def test_a_folder_that_would_get_another_owner_is_named(root: Root) -> None:
    root.at("/data/models").mkdir(parents=True, mode=0o755)
    judge = root.judge()
    assert judge.owner_of_folder("/data/models", "0755", USER, GROUP) == ""
    owner_text = f"mode 0755, of {USER}:{GROUP}; it would be 0755, of nobody:nogroup"
    assert judge.owner_of_folder("/data/models", "0755", "nobody", "nogroup") == owner_text
    assert root.judge("/data/models").owner_of_folder("/data/models", "0700", USER, GROUP) == ""
    root.record(1)
    for path in ("/data/models", "/data/models/huggingface", "/opt/lockstep/engines"):
        root.at(path).mkdir(parents=True, exist_ok=True)
        assert root.judge().owner_of_folder(path, "0700", USER, GROUP) == ""


def test_a_folder_with_a_script_of_ours_is_ours(root: Root) -> None:
    root.write("/data/scripts/mine.sh")
    assert root.judge().owner_of_folder("/data/scripts", "0700", USER, GROUP)
    root.write("/data/scripts/llm/switch.sh", OURS)
    for path in ("/data/scripts", "/data/scripts/llm"):
        assert root.judge().owner_of_folder(path, "0700", USER, GROUP) == ""


SSH = "/usr/lib/systemd/system/ssh.service"
#: `sshd` is an alias of `ssh`, `vllm` is where a deploy writes it; others are not there.
FRAGMENTS = {"ssh.service": SSH, "sshd.service": SSH, "vllm.service": UNIT}
CONFFILES = "dpkg-query --show --showformat=${Conffiles} earlyoom"
CONTAINERS = 'docker ps --format {{.Names}}\t{{.Label "lockstep.unit"}}'


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSystemd:
    return FakeSystemd(tmp_path / "systemd", monkeypatch)


@pytest.fixture
def program_outputs(monkeypatch: pytest.MonkeyPatch, systemd: FakeSystemd) -> dict[str, str]:
    """The output of programs, by their words; others fail."""
    outputs = {
        "dpkg-query --search /etc/default/earlyoom": "earlyoom: /etc/default/earlyoom",
        f"dpkg-query --search {SSH}": "openssh-server: x",
        CONFFILES: f" /etc/default/earlyoom {32 * '0'}\n",
    }

    for unit, path in FRAGMENTS.items():
        systemd.unit(unit, FragmentPath=path)
    run_program = runner.run

    def run(argv: tuple[str, ...], timeout: float) -> subprocess.CompletedProcess[str]:
        if argv[0] == "systemctl":
            return run_program(argv, timeout)
        out = outputs.get(" ".join(argv))
        return subprocess.CompletedProcess(argv, int(out is None), out or "", "")

    monkeypatch.setattr(runner, "run", run)
    return outputs


def test_a_packages_settings_are_replaced_only_as_shipped(
    root: Root, program_outputs: dict[str, str]
) -> None:
    path = "/etc/default/earlyoom"
    root.write(path, "shipped\n")
    assert root.judge().foreign_owner_of_file(path).endswith(f", of {USER}, of package earlyoom")
    shipped_md5 = hashlib.md5(b"shipped\n").hexdigest()
    program_outputs[CONFFILES] = f" {path} {shipped_md5}\n"
    assert root.judge().foreign_owner_of_file(path) == ""
    root.write(path, "shipped, and one line of mine\n")
    assert root.judge().foreign_owner_of_file(path)


@pytest.mark.usefixtures("program_outputs")
def test_a_unit_that_comes_from_elsewhere_is_named_with_its_package(root: Root) -> None:
    names = ["ssh.service", "sshd.service", "vllm.service", "none.service"]
    unit_origin = "/usr/lib/systemd/system/ssh.service, of package openssh-server"
    assert root.judge("unit sshd").foreign_owners_of_units(names) == {
        "ssh.service": unit_origin,
        "sshd.service": "",
        "vllm.service": "",
        "none.service": "",
    }
    assert root.judge().foreign_owners_of_units([]) == {}


def test_a_restart_of_docker_would_end_the_containers_of_others(
    root: Root, program_outputs: dict[str, str], systemd: FakeSystemd
) -> None:
    program_outputs[CONTAINERS] = "postgres\t\nopen-webui\topen-webui\nplex\t\n"
    label, running = "lockstep.unit", {"LOCKSTEP_RESTART_KEY": "0123"}
    pipe = subprocess.PIPE
    words = ["/bin/sh", "-c", "echo; read end"]
    with subprocess.Popen(words, env=running, stdin=pipe, stdout=pipe) as process:
        # While it begins, the kernel shows no environment of it.
        assert process.stdout is not None and process.stdout.readline()
        systemd.unit("docker.service", MainPID=process.pid)
        judge = root.judge()
        restart_reason = "its restart would end postgres, plex"
        assert (
            judge.containers_ended_by_restart(label, "4567")
            == judge.containers_ended_by_restart(label, None)
            == restart_reason
        )
        assert judge.containers_ended_by_restart(label, "0123") == ""
        # One that does not answer may have others' containers.
        del program_outputs[CONTAINERS]
        assert "Docker does not say" in judge.containers_ended_by_restart(label, "4567")
        assert root.judge("unit docker.service").containers_ended_by_restart(label, None) == ""
        process.kill()
    # Docker does not run: nothing of anybody's does.
    systemd.unit("docker.service")
    assert root.judge().containers_ended_by_restart(label, None) == ""


def test_an_account_is_ours_by_its_home(monkeypatch: pytest.MonkeyPatch, root: Root) -> None:
    assert root.judge().owner_of_account("no-such-account") == ""
    assert root.judge().owner_of_account("root") == "uid 0, home /root"
    assert root.judge("account root").owner_of_account("root") == ""
    monkeypatch.setattr(ownership, "HOME", "/root")
    assert root.judge().owner_of_account("root") == ""


@pytest.mark.usefixtures("program_outputs")
def test_everything_in_the_way_is_answered_by_the_name_that_adopts_it(tmp_path: Path) -> None:
    path, folder = tmp_path / "launch.sh", tmp_path / "models"
    path.write_text(THEIRS)
    folder.mkdir(mode=0o700)
    questions = {
        "files": [
            {"path": str(path), "check": "shell"},
            {"path": "/etc/systemd/system/ssh.service", "check": "unit"},
        ],
        "folders": [{"path": str(folder), "mode": "0755", "owner": USER, "group": GROUP}],
        "accounts": ["root"],
    }
    verdicts = ask("deploy_records.foreign_obstacles", questions)
    names = [str(path), str(folder), "unit ssh.service", "account root"]
    assert sorted(verdicts) == sorted(names)
    assert ask("deploy_records.foreign_obstacles", {**questions, "adopt": names}) == {}


def test_a_unit_of_a_package_is_refused_whatever_its_containers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no container to end, a model with the name of Docker's own unit went unnoticed."""
    unit = {"path": f"{ownership.UNITS}docker.service", "check": "unit"}
    questions = {"files": [unit], "docker": {"label": "lockstep.unit", "restart_key": ""}}
    unit_origin = "/usr/lib/systemd/system/docker.service"
    monkeypatch.setattr(
        ownership.Ownership, "foreign_owners_of_units", lambda *_: {"docker.service": unit_origin}
    )
    for containers, full_reason in (
        ("", unit_origin),
        ("its restart", f"{unit_origin}; its restart"),
    ):
        monkeypatch.setattr(
            ownership.Ownership,
            "containers_ended_by_restart",
            lambda *_, containers_reason=containers, **__: containers_reason,
        )
        assert ownership.foreign_things(questions, tmp_path) == {"unit docker.service": full_reason}


def test_the_folders_of_the_deploys_own_are_ours() -> None:
    settings = Settings(name="spark", models={})
    own = {folder.path for folder in folders(settings)}
    data = ("/data", settings.paths.engines)
    assert {path for path in own if not path.startswith((*ownership.HOMES, *data))} == set()
    assert (managed_file.MARK, managed_file.HOME) == (ownership.MARK, ownership.HOME)
    assert {managed_file.CONFIGURATION, managed_file.PROGRAMS, managed_file.STATE} <= set(
        ownership.HOMES
    )
