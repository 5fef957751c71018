"""Each reader of a host's state, run on this machine or against a temporary tree."""

from __future__ import annotations

import getpass
import grp
import hashlib
import json
import os
import pwd
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from a_probe import ask, program
from a_spark import pins_for, spark
from onhost_fakes import FakeDocker

from lockstep.deploy.questions import questions
from lockstep.files import sent
from lockstep.files.managed_file import PROGRAMS
from lockstep.host.intended import Intended
from lockstep.onhost.core import meminfo
from lockstep.onhost.facts import files
from lockstep.onhost.records.ours import MARK

USER = getpass.getuser()
GROUP = grp.getgrgid(os.getgid()).gr_name


def test_readers_are_asked_at_once_and_one_that_fails_leaves_the_others(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text\n")
    path = str(tmp_path / "file")
    asked: dict[str, Any] = {
        "files": {"paths": [path]},
        "machine.sysctls": ["kernel.ostype"],
        "environments": {},
        "weights": str(tmp_path / "none"),
    }
    done = subprocess.run(
        [sys.executable, *sent.COMMAND[1:]],
        # What sudo reads a password from comes first.
        input="password\n" + sent.questions(asked) + "\n",
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["answers"]["files"][path]["text"] == "text\n"
    assert found["answers"]["machine.sysctls"] == {"kernel.ostype": "Linux"}
    assert found["answers"]["weights"] == {}
    assert found["faults"] == {"environments": "KeyError: 'home'"}


def test_files_does_not_send_a_text_that_is_known(tmp_path: Path) -> None:
    same, other = tmp_path / "same", tmp_path / "other"
    same.write_text("text\n")
    other.write_text("changed\n")
    digest = hashlib.sha256(b"text\n").hexdigest()
    paths = [str(same), str(other)]
    found = ask("files", {"paths": paths, "known": dict.fromkeys(paths, digest)})
    assert [found[path]["text"] for path in paths] == [None, "changed\n"]
    assert found[str(same)]["sha256"] == digest and "sha256" not in found[str(other)]


def test_memory_is_what_the_kernel_has_available() -> None:
    available = meminfo.memory().available * meminfo.GIB
    assert ask("machine.available", None) == pytest.approx(available, rel=0.2)


def test_files_answers_text_mode_and_owner(tmp_path: Path) -> None:
    file, folder, link = tmp_path / "file", tmp_path / "folder", tmp_path / "link"
    file.write_text("grüße\n")
    file.chmod(0o640)
    folder.mkdir(mode=0o750)
    link.symlink_to(file)
    paths = [str(file), str(folder), str(link), str(tmp_path / "none"), str(file / "below")]
    owner = {"owner": USER, "group": GROUP}
    assert list(ask("files", {"paths": paths}).values()) == [
        {"kind": "file", "mode": "0640", **owner, "text": "grüße\n"},
        {"kind": "folder", "mode": "0750", **owner, "text": None},
        {"kind": "link", "mode": "0777", **owner, "text": None},
        None,
        None,
    ]


def test_files_never_sends_a_private_text(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    paths = [str(secret)]
    one, other = (
        ask("files", {"paths": paths, "private": paths, "key": 32 * digit})[str(secret)]
        for digit in "ab"
    )
    assert one["text"] is None and one["seal"] != other["seal"]
    shown = json.dumps([one, other])
    assert "hunter2" not in shown
    # Whoever reads a plain hash tries words until one fits.
    assert hashlib.sha256(b"hunter2").hexdigest()[:32] not in shown


def test_files_takes_a_link_to_a_folder_for_the_folder(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir(mode=0o755)
    models = tmp_path / "models"
    models.symlink_to(disk)
    assert ask("files", {"paths": [str(models)]})[str(models)]["kind"] == "folder"


def test_files_survives_bytes_that_are_no_text_and_pipes(tmp_path: Path) -> None:
    binary, pipe = tmp_path / "binary", tmp_path / "pipe"
    binary.write_bytes(b"\xff\xfe")
    os.mkfifo(pipe)
    answer = ask("files", {"paths": [str(binary), str(pipe)]})
    assert [state["kind"] for state in answer.values()] == ["file", "other"]


def test_units_answers_state_generation_and_boot_links(tmp_path: Path) -> None:
    wants = tmp_path / "etc/multi-user.target.wants"
    wants.mkdir(parents=True)
    (wants / "b.service").symlink_to("/nonexistent/b.service")
    (wants / "other.service").symlink_to("/nonexistent/other.service")
    requires = tmp_path / "etc/x.target.requires"
    requires.mkdir()
    (requires / "b.service").symlink_to("/nonexistent/b.service")
    shown = (
        "Id=a.service\\nActiveState=active\\nLoadState=loaded\\nMainPID={}\\nNeedDaemonReload=yes"
        "\\n\\nId=b.service\\nActiveState=inactive\\nLoadState=not-found\\nMainPID=0"
    )
    running = subprocess.Popen(["sleep", "60"], env={"LOCKSTEP_GENERATION": "0123456789abcdef"})
    try:
        program(tmp_path / "bin", "systemctl", f"printf '{shown.format(running.pid)}\\n'")
        answer = ask(
            "units",
            {"a.service": [], "b.service": []},
            tmp_path / "bin",
            {"/etc/systemd/system": str(tmp_path / "etc")},
        )
    finally:
        running.kill()
        running.wait()
    assert answer == {
        "a.service": {
            "Id": "a.service",
            "ActiveState": "active",
            "LoadState": "loaded",
            "MainPID": str(running.pid),
            "NeedDaemonReload": "yes",
            "generation": "0123456789abcdef",
            "outdated": False,
            "links": [],
        },
        "b.service": {
            "Id": "b.service",
            "ActiveState": "inactive",
            "LoadState": "not-found",
            "MainPID": "0",
            "generation": "",
            "outdated": False,
            "links": [str(wants / "b.service"), str(requires / "b.service")],
        },
    }


@pytest.mark.parametrize(
    ("state", "outdated"),
    [
        ("ActiveState=active\\nActiveEnterTimestamp=@{later}\\nDropInPaths={file}", False),
        ("ActiveState=active\\nActiveEnterTimestamp=@{now}\\nDropInPaths={file}", False),
        ("ActiveState=active\\nActiveEnterTimestamp=@1000\\nDropInPaths={file}", True),
        ("ActiveState=inactive\\nActiveEnterTimestamp=@1000\\nDropInPaths={file}", False),
        # Written, but systemd was not told: it does not name the file yet.
        ("ActiveState=active\\nActiveEnterTimestamp=@{later}\\nDropInPaths=", True),
        ("ActiveState=inactive\\nActiveEnterTimestamp=@1000\\nDropInPaths=", False),
        # Of a unit that has done its work its own file counts; of a running one its generation.
        ("{exited}\\nActiveEnterTimestamp=@1000\\nDropInPaths={file}", True),
        ("{exited}\\nActiveEnterTimestamp=@{later}\\nDropInPaths={file}", False),
    ],
)
def test_units_sees_a_service_that_is_older_than_our_settings(
    tmp_path: Path, state: str, outdated: bool
) -> None:
    file, theirs = (tmp_path / f"a.service.d/{name}.conf" for name in ("60-ours", "99-my-lockstep"))
    file.parent.mkdir()
    file.write_text(f"# {MARK}\n")
    # Somebody else's drop-in restarts nothing, however new it is.
    theirs.touch()
    os.utime(theirs, (2**31, 2**31))
    now = int(file.stat().st_mtime)
    exited = f"ActiveState=active\\nSubState=exited\\nFragmentPath={file}"
    text = state.format(now=now, later=now + 60, file=f"{file} {theirs}", exited=exited)
    program(tmp_path / "bin", "systemctl", f"printf 'Id=a.service\\n{text}\\n'")
    places = {"/etc/systemd/system": str(tmp_path)}
    answer = ask("units", {"a.service": []}, tmp_path / "bin", places)
    assert answer["a.service"]["outdated"] is outdated


@pytest.mark.parametrize(
    ("written", "line", "outdated"),
    [
        (60, "LoadCredential=key:{secret}", True),
        (-60, "LoadCredential=key:{secret}", False),
        (60, "# LoadCredential=key:{secret}", False),
        # Its owner renews it, and says when Caddy is to read it.
        (60, "LoadCredential=key:/etc/ssl/yours.key", False),
        (60, "LoadCredential=key:{secret}.gone", False),
    ],
)
def test_units_sees_a_service_that_is_older_than_a_secret_that_it_was_given(
    tmp_path: Path, written: int, line: str, outdated: bool
) -> None:
    unit, secret = tmp_path / "a.service", tmp_path / "key"
    secret.touch()
    os.utime(secret, (2000 + written, 2000 + written))
    unit.write_text(f"[Service]\n{line.format(secret=secret)}\n")
    text = f"ActiveState=active\nActiveEnterTimestamp=@2000\nFragmentPath={unit}"
    program(tmp_path / "bin", "systemctl", f"printf 'Id=a.service\n{text}\n'")
    places = {"/etc/systemd/system": str(tmp_path), "/etc/lockstep/secrets": str(tmp_path)}
    answer = ask("units", {"a.service": []}, tmp_path / "bin", places)
    assert answer["a.service"]["outdated"] is outdated


def test_units_sees_a_service_that_is_older_than_its_variables_of_ours(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "proxy.env", tmp_path.parent / "theirs.env"
    for path, written in ((ours, 1000), (theirs, 3000)):
        path.touch()
        os.utime(path, (written, written))
    text = "ActiveState=active\\nActiveEnterTimestamp=@2000\\nFragmentPath=/nonexistent"
    for path in (ours, theirs):
        text += f"\\nEnvironmentFiles={path} (ignore_errors=no)"
    program(tmp_path / "bin", "systemctl", f"printf 'Id=docker.service\\n{text}\\n'")
    places = {"/etc/systemd/system": str(tmp_path), '"/etc/lockstep/"': f'"{tmp_path}/"'}
    for written, outdated in ((1000, False), (3000, True)):
        os.utime(ours, (written, written))
        answer = ask("units", {"docker.service": []}, tmp_path / "bin", places)
        assert answer["docker.service"]["outdated"] is outdated


@pytest.mark.parametrize(
    ("written", "sub", "outdated"),
    [(1000, "running", False), (3000, "running", True), (3000, "exited", False)],
)
def test_units_sees_a_service_that_is_older_than_its_program(
    tmp_path: Path, written: int, sub: str, outdated: bool
) -> None:
    program_file = tmp_path / "memory_floor.py"
    program_file.touch()
    os.utime(program_file, (written, written))
    text = f"ActiveState=active\\nSubState={sub}\\nActiveEnterTimestamp=@2000\\nFragmentPath="
    program(tmp_path / "bin", "systemctl", f"printf 'Id=a.service\\n{text}\\n'")
    asked = {"a.service": [str(program_file), "/nonexistent"]}
    answer = ask("units", asked, tmp_path / "bin", {"/etc/systemd/system": str(tmp_path)})
    assert answer["a.service"]["outdated"] is outdated


def test_units_reads_the_gate_of_a_unit_that_has_no_main_process_yet(tmp_path: Path) -> None:
    running = subprocess.Popen(["sleep", "60"], env={"LOCKSTEP_GENERATION": "0123456789abcdef"})
    try:
        text = f"printf 'Id=a.service\\nMainPID=0\\nControlPID={running.pid}\\n'"
        program(tmp_path / "bin", "systemctl", text)
        answer = ask("units", {"a.service": []}, tmp_path / "bin")
    finally:
        running.kill()
        running.wait()
    assert answer["a.service"]["generation"] == "0123456789abcdef"


@pytest.mark.parametrize(
    ("service", "socket", "shown"),
    [
        ("loaded active enabled", "", "on"),
        ("loaded active disabled", "", "off at boot"),
        ("loaded active enabled-runtime", "", "off at boot"),
        ("loaded inactive enabled", "", "inactive"),
        ("loaded failed disabled", "", "failed, off at boot"),
        ("masked inactive masked", "", "inactive, masked"),
        # Nothing can enable it.
        ("loaded active static", "", "on"),
        ("not-found inactive -", "", None),
        # Ubuntu's sshd: its socket is enabled, and waits before the first login.
        ("loaded active disabled", "loaded active enabled", "on"),
        ("loaded inactive disabled", "loaded active enabled", "on"),
        # Debian has that socket, too, and leaves it off.
        ("loaded active disabled", "loaded inactive disabled", "off at boot"),
        ("loaded active disabled", "not-found inactive -", "off at boot"),
    ],
)
def test_a_service_of_the_system_is_on_where_it_runs_and_comes_with_a_boot(
    tmp_path: Path, service: str, socket: str, shown: str | None
) -> None:
    blocks = []
    for unit, words in (("ssh.service", service), ("ssh.socket", socket)):
        if words:
            load, active, enabled = words.split()
            block = f"Id={unit}", f"LoadState={load}", f"ActiveState={active}"
            blocks.append("\\n".join((*block, f"UnitFileState={enabled}")))
    program(tmp_path / "bin", "systemctl", "printf '" + "\\n\\n".join(blocks) + "\\n'")
    places = {"/etc/systemd/system": str(tmp_path)}
    answer = ask("units.system_services", ["ssh.service"], tmp_path / "bin", places)
    assert answer == ({"ssh.service": shown} if shown else {})


def test_units_survives_a_process_that_is_gone(tmp_path: Path) -> None:
    program(tmp_path / "bin", "systemctl", "printf 'Id=a.service\\nMainPID=4194304\\n'")
    answer = ask("units", {"a.service": []}, tmp_path / "bin")
    assert answer["a.service"]["generation"] == ""


def test_images_answers_the_architecture_of_each_digest(tmp_path: Path) -> None:
    here = {"/run/docker.sock": str(tmp_path / "docker.sock")}
    asked = ["a/b@sha256:1", "a/c@sha256:2"]
    assert ask("docker.images", asked, replace=here) == {}
    docker = FakeDocker(tmp_path / "docker.sock")
    # An image store may find one by its digest alone.
    docker.images = {name: {"Architecture": "arm64"} for name in asked}
    image = {"RepoDigests": asked[:1], "RepoTags": ["a/b:lockstep-1"]}
    docker.answers["/images/json"] = [image, {"RepoDigests": None}]
    try:
        assert ask("docker.images", asked, replace=here) == {"a/b@sha256:1": "arm64"}
        # One that nothing holds is not as it is to be: a plain prune takes it.
        docker.answers["/images/json"] = [{**image, "RepoTags": ["a/b:theirs"]}]
        unheld = {"a/b@sha256:1": "arm64, without Lockstep's tag"}
        assert ask("docker.images", asked, replace=here) == unheld
    finally:
        docker.close()


def test_an_image_of_a_kept_generation_is_not_told_as_somebodys(tmp_path: Path) -> None:
    """It has a tag of ours, also where no target of today needs it."""
    here = {"/run/docker.sock": str(tmp_path / "docker.sock")}
    docker = FakeDocker(tmp_path / "docker.sock")
    docker.answers["/images/json"] = [
        {"Id": "sha256:1", "RepoDigests": ["a/b@sha256:1"], "RepoTags": ["a/b:lockstep-1"]},
        {"Id": "sha256:2", "RepoDigests": ["a/b@sha256:2"], "RepoTags": ["theirs:v1"]},
    ]
    try:
        found = ask("docker.contents", {"images": [], "containers": []}, replace=here)
    finally:
        docker.close()
    assert "a/b:lockstep-1" not in json.dumps(found) and "theirs:v1" in json.dumps(found), found


def test_links_accounts_and_settings_are_what_this_machine_has(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "lib")
    assert ask("files.links", [str(link), str(tmp_path)]) == {
        str(link): str(tmp_path / "lib"),
        str(tmp_path): None,
    }
    asked = {"accounts": ["root", "no-such-user"], "groups": ["root", "no-such-group"]}
    root = {"uid": 0, "home": pwd.getpwuid(0).pw_dir, "groups": ["root"]}
    assert ask("accounts", asked) == {
        "accounts": {"root": root, "no-such-user": None},
        "groups": {"root": 0, "no-such-group": None},
    }
    found = ask("machine.sysctls", ["kernel.ostype", "no.such"])
    assert found == {"kernel.ostype": "Linux", "no.such": None}
    assert list(ask("packages", ["base-files", "no-such-package"])) == ["base-files"]


def test_a_venv_whose_installation_was_cut_off_counts_as_empty(tmp_path: Path) -> None:
    for name in ("uv-0.9.1", "Ruamel_Yaml-1.0", "half-2.0"):
        folder = tmp_path / f"lib/python3.12/site-packages/{name}.dist-info"
        folder.mkdir(parents=True)
        if not name.startswith("half"):
            (folder / "RECORD").touch()
    asked = [str(tmp_path), "/nonexistent"]
    versions = {"uv": "0.9.1", "ruamel-yaml": "1.0"}
    assert list(ask("environments.tools", asked).values()) == [versions, {}]
    (tmp_path / "unfinished").touch()
    assert list(ask("environments.tools", asked).values()) == [{}, {}]


def test_a_package_that_is_half_installed_does_not_count(tmp_path: Path) -> None:
    rows = (
        ("jq", "1.6", "install", "installed"),
        ("git", "2.39", "install", "half-configured"),
        ("rsync", "", "unknown", "not-installed"),
    )
    said = "\n".join("\t".join(row) for row in rows)
    program(tmp_path / "bin", "dpkg-query", f"echo '{said}'; exit 1")
    assert ask("packages", ["jq", "git", "rsync"], tmp_path / "bin") == {"jq": "1.6"}


def test_engines_of_a_wiped_host(tmp_path: Path) -> None:
    home = str(tmp_path / "none")
    assert ask("environments", {"home": home, "current": f"{home}/current"}) == {
        "environment": {"python": None, "distributions": {}, "origins": {}},
        "commits": {"vllm": None, "transformers": None},
        "unfinished": False,
        "check": None,
        "current": None,
        "images": {},
    }


def test_engines_answers_versions_origins_commits_and_records(tmp_path: Path) -> None:
    site = tmp_path / "abc/venv/lib/python3.12/site-packages"
    for name in ("torch-2.10.0+cu130", "vllm-0.19.2", "flashinfer_cubin-0.6", "half-1.0"):
        (site / f"{name}.dist-info").mkdir(parents=True)
        (site / f"{name}.dist-info/RECORD").touch()
    (site / "half-1.0.dist-info/RECORD").unlink()
    url = f"file://{tmp_path}/abc/vllm"
    origin = {"url": url, "dir_info": {"editable": True}}
    (site / "vllm-0.19.2.dist-info/direct_url.json").write_text(json.dumps(origin))
    source = tmp_path / "abc/vllm"
    git = ["git", "-C", str(source), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "init", "--quiet", str(source)], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "x"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    (tmp_path / "abc/transformers").mkdir()
    (tmp_path / "abc/check.json").write_text('{"faults": []}')
    (tmp_path / "current").symlink_to("abc")
    (tmp_path / "records").mkdir()
    (tmp_path / "records/sha256-1.json").write_text('{"version": "0.19.1"}')
    (tmp_path / "records/sha256-2.json").write_text('{"versi')
    answer = ask(
        "environments",
        {
            "home": str(tmp_path / "abc"),
            "current": str(tmp_path / "current"),
            "images": {"qwen": "sha256:1", "mistral": "sha256:2", "other": "sha256:3"},
        },
        replace={"/var/cache/lockstep/images": str(tmp_path / "records")},
    )
    assert answer == {
        "environment": {
            "python": "3.12",
            "distributions": {
                "torch": "2.10.0+cu130",
                "vllm": "0.19.2",
                "flashinfer-cubin": "0.6",
            },
            "origins": {"vllm": {"url": url, "editable": True}},
        },
        "commits": {"vllm": head.stdout.strip(), "transformers": None},
        "unfinished": False,
        "check": {"faults": []},
        "current": "abc",
        "images": {"qwen": {"version": "0.19.1"}, "mistral": None, "other": None},
    }


def test_marked_answers_modules_of_the_package_at_any_depth(tmp_path: Path) -> None:
    plan = spark()
    asked = questions(Intended(plan, pins_for(plan)))["files.marked"]
    folder = tmp_path / PROGRAMS.strip("/")
    modules = [folder / f"lockstep/onhost/{name}.py" for name in ("engines/left", "left")]
    for path in (*modules, folder / "environments/tools/lib/lockstep.py"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    asked = {**asked, "folders": [], "named": [f"{tmp_path}{name}" for name in asked["named"]]}
    own = {f'"{PROGRAMS}"': f'"{folder}"'}
    assert ask("files.marked", asked, replace=own) == [str(path) for path in modules]
    # Outside our folders a name alone says nothing.
    assert ask("files.marked", asked) == []
    modules[0].write_text(f"# {MARK}\n")
    assert ask("files.marked", asked) == [str(modules[0])]


def test_what_the_inventory_asks_no_more_is_there_only_where_it_is_ours(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("60-lockstep.conf", "lockstep.list")]
    Path(paths[0]).write_text(f"# {MARK}\n")
    Path(paths[1]).write_text("deb http://mine.example stable main\n")
    found = ask("files", {"paths": paths, "private": paths, "key": "00", "absent": paths})
    assert [bool(found[path]) for path in paths] == [True, False]
    asked = {"key": "00", "files": [], "absent": paths, "marked": [], "scripts": ""}
    asked |= {"own": [], "allowed": [], "inside": []}
    assert list(files.leftovers(asked)) == [("leftover", paths[0], "present")]
