"""Things of Lockstep's and of others on a host: one judgement for all writers."""

import getpass
import grp
import hashlib
import json
import os
import subprocess
from pathlib import Path

import pytest
from a_probe import ask

from lockstep.files import managed_file
from lockstep.inventory.settings import Settings
from lockstep.onhost.core import runner
from lockstep.onhost.records import ownership
from lockstep.system.folders import folders

USER = getpass.getuser()
GROUP = grp.getgrgid(os.getgid()).gr_name
FOREIGN = "[Service]\nExecStart=/home/me/serve\n"
OURS = f"# {ownership.MARK} for model qwen. Do not edit.\n[Service]\n"
UNIT = "/etc/systemd/system/vllm.service"
GENERATIONS = "/var/lib/lockstep-deploy/generations"


class Root:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def at(self, path: str) -> Path:
        place = self.folder / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def write(self, path: str, text: str = FOREIGN) -> Path:
        self.at(path).write_text(text)
        return self.at(path)

    def link(self, path: str, target: str) -> Path:
        self.at(path).symlink_to(target)
        return self.at(path)

    def record(self, name: str, *paths: str) -> None:
        document = {"number": int(name) if name.isdigit() else 7, "digest": name, "images": []}
        document["engine"] = {"folder": "/opt/lockstep/engines"}
        document["weights"] = {"cache_dir": "/data/models/huggingface/hub"}
        document["files"] = [{"path": path} for path in paths]
        self.write(f"{GENERATIONS}/{name}.json", json.dumps(document))

    def judge(self, *adopted_names: str) -> ownership.Ownership:
        return ownership.Ownership(adopted_names, self.folder)

    def owner(self, path: str, *adopted_names: str) -> str:
        return self.judge(*adopted_names).foreign_owner_of_file(path)

    def folder_owner(self, path: str, *adopted_names: str) -> str:
        """The owner of a folder that the deploy wants with the mode 0700 and for this account."""
        return self.judge(*adopted_names).owner_of_folder(path, "0700", USER, GROUP)


@pytest.fixture
def root(tmp_path) -> Root:
    return Root(tmp_path / "root")


def test_nothing_there_is_nobodys_and_files_in_our_folders_are_ours_but_no_folder(root):
    for path in ("/etc/lockstep/models.json", "/usr/local/lib/lockstep/__main__.py"):
        root.write(path)
        assert root.owner(path) == ""
    assert root.owner(UNIT) == root.folder_owner("/data/models") == ""
    for path in ("/etc/lockstep/secrets/api-key", UNIT):
        root.at(path).mkdir(parents=True)
        assert root.owner(path) == "a folder"


def test_a_file_by_hand_is_its_owners_with_the_day_whatever_its_name(root):
    for path in (UNIT, "/etc/lockstep-old/x", ownership.UV, *ownership.CONFFILES):
        os.utime(root.write(path), (1763683200, 1763683200))
        assert root.owner(path).startswith(f"written 2025-11-21, of {USER}")


def test_the_list_of_apt_of_before_it_had_a_mark_is_known_by_what_was_here(root):
    root.write(ownership.UNMARKED_FILE, "deb http://packages.example/ubuntu noble main\n")
    assert root.owner(ownership.UNMARKED_FILE)
    for was, is_foreign in (("file 0644 root root", True), (None, False)):
        baseline = {"paths": {ownership.UNMARKED_FILE: was}}
        root.write("/var/lib/lockstep-deploy/found.json", json.dumps(baseline))
        assert bool(root.owner(ownership.UNMARKED_FILE)) == is_foreign


def test_every_file_outside_our_folders_says_in_its_first_lines_whose_it_is():
    """Of all hosts that tests/render writes; nothing else would tell it from the owner's."""
    hosts = (Path(__file__).resolve().parents[4] / "tests/render/golden").iterdir()
    files = [(f"/{at.relative_to(host)}", at) for host in hosts for at in host.rglob("*")]
    outside = [at for name, at in files if at.is_file() and not ownership.is_in_own_folder(name)]
    assert len(outside) > 20
    assert [str(path) for path in outside if not ownership.is_marked(path)] == []


def test_the_mark_stands_in_the_first_lines_of_a_regular_file(root):
    root.write("/data/scripts/a.sh", OURS)
    root.write("/data/scripts/b.sh", FOREIGN + ownership.HEAD * " " + OURS)
    root.link("/data/scripts/c.sh", "a.sh")
    assert root.owner("/data/scripts/a.sh") == ""
    assert root.owner("/data/scripts/b.sh").startswith("written ")
    assert root.owner("/data/scripts/c.sh") == "a link to a.sh"


def test_what_the_newest_record_and_an_unfinished_deploy_have_is_ours_also_as_a_mask(root):
    root.record("0009", "/data/old.sh")
    root.record("0010", UNIT)
    root.write(f"{GENERATIONS}/0011.json", "{")
    root.record("begun", "/data/new.sh")
    root.link(UNIT, "/dev/null")
    for path in ("/data/old.sh", "/data/new.sh"):
        root.write(path)
    assert root.owner(UNIT) == root.owner("/data/new.sh") == ""
    # It was removed since; what is there now is somebody else's.
    assert root.owner("/data/old.sh").startswith("written ")


@pytest.mark.parametrize("entry", [UNIT, "unit vllm.service", "unit vllm"])
def test_what_is_adopted_is_ours_and_a_copy_of_it_stays(root, entry):
    root.write(UNIT)
    root.write("/etc/systemd/system/other.service")
    judge = root.judge(entry)
    assert judge.foreign_owner_of_file(UNIT) == ""
    assert judge.foreign_owner_of_file("/etc/systemd/system/other.service")
    judge.copy_before_adoption(UNIT)
    root.write(UNIT, OURS)
    judge.copy_before_adoption(UNIT)
    assert root.at(ownership.ADOPTED_FOLDER + UNIT).read_text() == FOREIGN
    assert root.at(ownership.ADOPTED_FOLDER).stat().st_mode & 0o077 == 0


def test_the_link_of_uv_is_ours_once_there_is_a_record_and_a_file_is_not(root):
    uv = root.link(ownership.UV, "/opt/mine/uv")
    assert root.owner(ownership.UV) == "a link to /opt/mine/uv"
    root.record("0001")
    assert root.owner(ownership.UV) == ""
    uv.unlink()
    root.write(ownership.UV)
    assert root.owner(ownership.UV).startswith("written ")


def test_a_folder_that_would_get_another_owner_is_named(root):
    root.at("/data/models").mkdir(parents=True, mode=0o755)
    judge = root.judge()
    assert judge.owner_of_folder("/data/models", "0755", USER, GROUP) == ""
    owner_text = judge.owner_of_folder("/data/models", "0755", "nobody", "nogroup")
    assert owner_text == f"mode 0755, of {USER}:{GROUP}; it would be 0755, of nobody:nogroup"
    assert root.folder_owner("/data/models", "/data/models") == ""
    root.record("0001")
    for path in ("/data/models", "/data/models/huggingface", "/opt/lockstep/engines"):
        root.at(path).mkdir(parents=True, exist_ok=True)
        assert root.folder_owner(path) == ""
    # With a script of ours.
    root.write("/data/scripts/mine.sh")
    assert root.folder_owner("/data/scripts")
    root.write("/data/scripts/llm/switch.sh", OURS)
    assert root.folder_owner("/data/scripts") == root.folder_owner("/data/scripts/llm") == ""


SSH = "/usr/lib/systemd/system/ssh.service"
CONFFILES = "dpkg-query --show --showformat=${Conffiles} earlyoom"
CONTAINERS = 'docker ps --format {{.Names}}\t{{.Label "lockstep.unit"}}'


@pytest.fixture
def program_outputs(monkeypatch, systemd) -> dict[str, str]:
    """The output of programs, by their words; others fail."""
    outputs = {
        "dpkg-query --search /etc/default/earlyoom": "earlyoom: /etc/default/earlyoom",
        f"dpkg-query --search {SSH}": "openssh-server: x",
        CONFFILES: f" /etc/default/earlyoom {32 * '0'}\n",
    }
    # `sshd` is an alias of `ssh`, `vllm` is where a deploy writes it; others are not there.
    for unit, path in {"ssh": SSH, "sshd": SSH, "vllm": UNIT}.items():
        systemd.unit(f"{unit}.service", FragmentPath=path)
    run_program = runner.run

    def run(argv, timeout: float):
        if argv[0] == "systemctl":
            return run_program(argv, timeout)
        out = outputs.get(" ".join(argv))
        return subprocess.CompletedProcess(argv, int(out is None), out or "", "")

    monkeypatch.setattr(runner, "run", run)
    return outputs


def test_a_packages_settings_are_replaced_only_as_shipped(root, program_outputs):
    [path] = ownership.CONFFILES
    root.write(path, "shipped\n")
    assert root.owner(path).endswith(f", of {USER}, of package earlyoom")
    shipped_md5 = hashlib.md5(b"shipped\n").hexdigest()
    program_outputs[CONFFILES] = f" {path} {shipped_md5}\n"
    assert root.owner(path) == ""
    root.write(path, "shipped, and one line of mine\n")
    assert root.owner(path)


@pytest.mark.usefixtures("program_outputs")
def test_a_unit_that_comes_from_elsewhere_is_named_with_its_package(root):
    names = ["ssh.service", "sshd.service", "vllm.service", "none.service"]
    unit_origin = f"{SSH}, of package openssh-server"
    origins = {**dict.fromkeys(names, ""), "ssh.service": unit_origin}
    assert root.judge("unit sshd").foreign_owners_of_units(names) == origins
    assert root.judge().foreign_owners_of_units([]) == {}


def test_a_restart_of_docker_ends_others_containers(root, program_outputs, systemd, monkeypatch):
    program_outputs[CONTAINERS] = "postgres\t\nopen-webui\topen-webui\nplex\t\n"
    monkeypatch.setattr(ownership.outdated_units, "running_restart_key", lambda _: "0123")
    systemd.unit("docker.service", MainPID=7)

    def reason(restart_key: str | None, *adopted_names: str) -> str:
        return root.judge(*adopted_names).containers_ended_by_restart("lockstep.unit", restart_key)

    assert reason("4567") == reason(None) == "its restart would end postgres, plex"
    assert reason("0123") == ""
    # One that does not answer may have others' containers.
    del program_outputs[CONTAINERS]
    assert "Docker does not say" in reason("4567")
    assert reason(None, "unit docker.service") == ""
    # Docker does not run: nothing of anybody's does.
    systemd.unit("docker.service")
    assert reason(None) == ""


def test_an_account_is_ours_by_its_home(monkeypatch, root):
    assert root.judge().owner_of_account("no-such-account") == ""
    assert root.judge().owner_of_account("root") == "uid 0, home /root"
    assert root.judge("account root").owner_of_account("root") == ""
    monkeypatch.setattr(ownership, "HOME", "/root")
    assert root.judge().owner_of_account("root") == ""


@pytest.mark.usefixtures("program_outputs")
def test_everything_in_the_way_is_answered_by_the_name_that_adopts_it(tmp_path):
    path, folder = tmp_path / "launch.sh", tmp_path / "models"
    path.write_text(FOREIGN)
    folder.mkdir(mode=0o700)
    questions = {
        "files": [
            {"path": str(path), "check": "shell"},
            {"path": "/etc/systemd/system/ssh.service", "check": "unit"},
        ],
        "folders": [{"path": str(folder), "mode": "0755", "owner": USER, "group": GROUP}],
        "accounts": ["root"],
    }
    names = [str(path), str(folder), "unit ssh.service", "account root"]
    assert sorted(ask("deploy_records.foreign_obstacles", questions)) == sorted(names)
    assert ask("deploy_records.foreign_obstacles", {**questions, "adopt": names}) == {}


@pytest.mark.parametrize("containers", ["", "its restart"])
def test_a_unit_of_a_package_is_refused_whatever_its_containers(tmp_path, monkeypatch, containers):
    """With no container to end, a model with the name of Docker's own unit went unnoticed."""
    unit = {"path": f"{ownership.UNITS}docker.service", "check": "unit"}
    questions = {"files": [unit], "docker": {"label": "lockstep.unit", "restart_key": ""}}
    judge, owner = ownership.Ownership, "/usr/lib/docker.service"
    monkeypatch.setattr(judge, "foreign_owners_of_units", lambda *_: {"docker.service": owner})
    monkeypatch.setattr(judge, "containers_ended_by_restart", lambda *_, **__: containers)
    reason = "; ".join(filter(None, (owner, containers)))
    assert ownership.foreign_things(questions, tmp_path) == {"unit docker.service": reason}


def test_the_folders_of_the_deploys_own_are_ours():
    settings = Settings(name="spark", models={})
    own = {folder.path for folder in folders(settings)}
    data = ("/data", settings.paths.engines)
    assert {path for path in own if not path.startswith((*ownership.HOMES, *data))} == set()
    assert (managed_file.MARK, managed_file.HOME) == (ownership.MARK, ownership.HOME)
    assert {managed_file.CONFIGURATION, managed_file.PROGRAMS, managed_file.STATE} <= set(
        ownership.HOMES
    )
