"""Each reader of a host's state, run on this machine or against a temporary tree."""

from __future__ import annotations

import getpass
import grp
import hashlib
import json
import os
import pwd
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from a_probe import ask, program
from a_repository import fork, source
from a_spark import pins_for, spark
from onhost_fakes import FakeDocker, FakeSystemd

from lockstep.deploy.questions import questions
from lockstep.files import remote_exec
from lockstep.files.managed_file import PROGRAMS
from lockstep.host.desired_state import DesiredState
from lockstep.onhost.core import clock, layout, unified_memory
from lockstep.onhost.facts import docker as dockers
from lockstep.onhost.facts import environments, files, reader_helpers, units
from lockstep.onhost.records import generations
from lockstep.onhost.records.ownership import MARK
from lockstep.onhost.system import gpu_sensors
from lockstep.resources import units as unit_resources
from lockstep.resources.files import file_facts

USER = getpass.getuser()
GROUP = grp.getgrgid(os.getgid()).gr_name


def test_readers_are_asked_at_once_and_one_that_fails_leaves_the_others(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text\n")
    path = str(tmp_path / "file")
    question: dict[str, Any] = {
        "files": {**QUESTION, "paths": [path], "shown": {path: "another"}},
        "machine.settings": {"names": ["kernel.ostype"], "others": False},
        "environments": {},
        "weights": str(tmp_path / "none"),
    }
    result = subprocess.run(
        [sys.executable, *remote_exec.COMMAND[1:]],
        # What sudo reads a password from comes first.
        input="password\n" + remote_exec.readers_input(question) + "\n",
        capture_output=True,
        text=True,
        check=True,
    )
    document = json.loads(result.stdout)
    assert document["answers"]["files"][path]["text"] == "text\n"
    assert document["facts"] == {"sysctl": {"kernel.ostype": "Linux"}}
    assert document["answers"]["weights"] == {}
    assert document["faults"] == {"environments": "KeyError: 'home'"}


QUESTION: dict[str, Any] = {"key": 32 * "a", "absent": []}
QUESTION |= {"certificates": {}, "authorities": []}


def test_files_sends_the_text_of_a_shown_file_that_is_not_known(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("same", "other", "private")]
    for path, text in zip(paths, ("text\n", "changed\n", "text\n"), strict=True):
        Path(path).write_text(text)
    known_seals = dict.fromkeys(paths[:2], reader_helpers.seal(32 * "a", b"text\n"))
    answers = ask("files", {**QUESTION, "paths": paths, "shown": known_seals})
    assert [answers[path]["text"] for path in paths] == [None, "changed\n", None]
    assert answers[paths[0]]["seal"] == answers[paths[2]]["seal"] != answers[paths[1]]["seal"]


def test_memory_is_what_the_kernel_has_available() -> None:
    available = unified_memory.memory().available * unified_memory.GIB
    assert ask("machine.available", None) == pytest.approx(available, rel=0.2)


def test_files_answers_kind_text_mode_and_owner(tmp_path: Path) -> None:
    file, folder, link = tmp_path / "file", tmp_path / "folder", tmp_path / "link"
    file.write_text("grüße\n")
    file.chmod(0o640)
    folder.mkdir(mode=0o750)
    link.symlink_to(file)
    # Models may lie on another disk, and somebody else's file may be no text.
    (tmp_path / "models").symlink_to(folder)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "binary").chmod(0o600)
    os.mkfifo(tmp_path / "pipe", 0o600)
    names = ("file", "folder", "link", "models", "binary", "pipe", "none", "file/below")
    owner = {"owner": USER, "group": GROUP}
    paths = [str(tmp_path / name) for name in names]
    answers = ask("files", {**QUESTION, "paths": paths, "shown": dict.fromkeys(paths, "another")})
    text_seals = [reader_helpers.seal(32 * "a", text) for text in ("grüße\n".encode(), b"\xff\xfe")]
    whole = {**owner, "target": None}
    assert list(answers.values()) == [
        {"kind": "file", "mode": "0640", **whole, "text": "grüße\n", "seal": text_seals[0]},
        {"kind": "folder", "mode": "0750", **whole, "text": None},
        {"kind": "link", "mode": "0777", **owner, "text": None, "target": str(file)},
        {"kind": "folder", "mode": "0750", **owner, "text": None, "target": str(folder)},
        {"kind": "file", "mode": "0600", **whole, "text": "\ufffd\ufffd", "seal": text_seals[1]},
        {"kind": "other", "mode": "0600", **whole, "text": None},
        None,
        None,
    ]


def test_files_never_sends_a_private_text(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    paths = [str(secret)]
    first_file, second_file = (
        ask("files", {**QUESTION, "paths": paths, "key": 32 * digit})[str(secret)] for digit in "ab"
    )
    assert first_file["text"] is None and first_file["seal"] != second_file["seal"]
    text = json.dumps([first_file, second_file])
    assert "hunter2" not in text
    # Whoever reads a plain hash tries words until one fits.
    assert hashlib.sha256(b"hunter2").hexdigest()[:32] not in text


@pytest.fixture
def running() -> Iterator[str]:
    """A process of a generation, by its number."""
    variables = {"LOCKSTEP_RESTART_KEY": "0123456789abcdef"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(["cat"], env=variables, bufsize=0, **pipes) as process:
        assert process.stdin and process.stdout
        # The kernel shows the variables a moment after the program has begun.
        process.stdin.write(b".")
        assert process.stdout.read(1)
        yield str(process.pid)
        process.kill()


def test_units_answers_state_restart_key_and_boot_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, running: str
) -> None:
    links = [tmp_path / f"multi-user.target.{way}/b.service" for way in ("requires", "wants")]
    for link in (*links, links[0].with_name("other.service")):
        link.parent.mkdir(exist_ok=True)
        link.symlink_to("/nonexistent")
    a = {"Id": "a.service", "ActiveState": "active", "LoadState": "loaded"}
    a |= {"MainPID": running, "NeedDaemonReload": "yes"}
    b = {"Id": "b.service", "ActiveState": "inactive", "LoadState": "not-found", "MainPID": "0"}
    systemd = FakeSystemd(tmp_path / "systemd", monkeypatch)
    for unit in (a, b):
        unit["SubState"] = "dead"
        systemd.unit(unit["Id"], **unit)
    monkeypatch.setattr(units, "_FOLDER", str(tmp_path))
    assert ask("units", {"programs": {"a.service": [], "b.service": []}}) == {
        "a.service": {
            **{**a, "restart_key": "0123456789abcdef", "newer": {}, "links": []},
            "settled": True,
        },
        "b.service": {
            **{**b, "restart_key": "", "newer": {}, "links": list(map(str, links))},
            "settled": True,
        },
    }


@pytest.mark.parametrize(
    ("state", "is_settled"),
    [
        ({"ActiveState": "active", "SubState": "running", "age": 5.0}, True),
        ({"ActiveState": "active", "SubState": "running", "age": 4.0}, False),
        ({"ActiveState": "active", "SubState": "exited", "FragmentPath": "/"}, True),
        ({"ActiveState": "active", "SubState": "waiting"}, True),
        ({"ActiveState": "activating", "SubState": "auto-restart", "age": 9.0}, False),
        ({"ActiveState": "activating", "SubState": "start", "age": 9.0}, False),
        ({"ActiveState": "inactive", "SubState": "dead", "Result": "success"}, True),
        ({"ActiveState": "inactive", "SubState": "dead", "Result": "exit-code"}, False),
        ({"ActiveState": "failed", "SubState": "failed", "Result": "exit-code"}, False),
    ],
)
def test_a_unit_is_settled_when_its_start_is_over(
    state: dict[str, Any], is_settled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "now", lambda: 1000.0)
    since = 1e6 * (1000 - state.pop("age", 0))
    FakeSystemd(tmp_path, monkeypatch).unit(
        "a.service", **state, StateChangeTimestampMonotonic=f"{since:.0f}"
    )
    assert units.read({"programs": {"a.service": ()}})["a.service"]["settled"] is is_settled


def test_a_unit_that_does_not_come_up_is_named_with_its_last_own_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemd = FakeSystemd(tmp_path, monkeypatch)
    monkeypatch.setattr(clock, "now", lambda: 1000.0 + len(waits))
    monkeypatch.setattr(clock, "sleep", lambda seconds: next(events, lambda: waits.append(None))())
    monkeypatch.setattr(
        units.units, "last_lines", lambda name, count: [f"{name} says why", f"{name}: it ended"]
    )
    waits: list[None] = []
    running = {"ActiveState": "active", "SubState": "running"}
    running |= {"StateChangeTimestampMonotonic": "996000000"}
    young = {"StateChangeTimestampMonotonic": "999000000"}
    again = {"ActiveState": "activating", "SubState": "auto-restart", "NRestarts": "7"}
    systemd.unit("good.service", **running)
    systemd.unit("bad.service", **again)
    events = iter(
        (
            lambda: systemd.unit("bad.service", **{**running, **young, "NRestarts": "8"}),
            lambda: waits.append(None),
            lambda: systemd.unit("bad.service", **{**again, "NRestarts": "9"}),
        )
    )
    assert units.await_settled_units(["good.service", "bad.service"]) == {
        "bad.service": "activating (auto-restart), restarted 9 times: bad.service says why"
    }
    assert next(events, None) is None
    # One that hangs in its start has no more than 30 s.
    systemd.unit("bad.service", ActiveState="activating", SubState="start")
    events = iter([lambda: waits.append(None)] * 40)
    assert units.await_settled_units(["bad.service"]) == {
        "bad.service": "activating (start), restarted 0 times: bad.service says why"
    }
    assert len(waits) == 31


OutdatedCheck = Callable[..., bool]


@pytest.fixture
def is_outdated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OutdatedCheck:
    """Tell whether a service with these properties in systemd is older than its files."""
    monkeypatch.setattr(units, "_FOLDER", str(tmp_path))
    monkeypatch.setattr(units, "_OURS", f"{tmp_path}/")
    secret = units._CREDENTIAL.pattern.replace("/etc/lockstep/secrets", str(tmp_path))
    monkeypatch.setattr(units, "_CREDENTIAL", re.compile(secret, re.MULTILINE))

    systemd = FakeSystemd(tmp_path / "systemd", monkeypatch)

    def read(properties: str, *programs: str) -> bool:
        values: dict[str, list[str]] = {}
        for key, _, value in (word.partition("=") for word in properties.split("|")):
            values.setdefault(key, []).append(value)
        systemd.unit("a.service", **values)
        question = {
            "programs": {"a.service": programs},
            "reads": {"a.service": [f"{tmp_path}/settings.d"]},
        }
        return unit_resources.is_outdated(units.read(question)["a.service"])

    return read


def write_file(path: Path, at: int, text: str = "") -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    os.utime(path, (at, at))
    return path


@pytest.mark.parametrize(
    ("state", "since", "drop_ins", "older"),
    [
        ("ActiveState=active", 2060, "{files}", False),
        ("ActiveState=active", 2000, "{files}", False),
        ("ActiveState=active", 1000, "{files}", True),
        ("ActiveState=inactive", 1000, "{files}", False),
        # Written, but systemd was not told: it does not name the file yet.
        ("ActiveState=active", 2060, "", True),
        ("ActiveState=inactive", 1000, "", False),
        # The restart key tells of its own file, which is newer.
        ("ActiveState=active|SubState=running", 2030, "{files}", False),
    ],
)
def test_units_sees_a_service_that_is_older_than_our_settings(
    tmp_path: Path, is_outdated: OutdatedCheck, state: str, since: int, drop_ins: str, older: bool
) -> None:
    file = write_file(tmp_path / "a.service.d/60-ours.conf", 2000, f"# {MARK}\n")
    # Somebody else's drop-in restarts nothing, however new it is.
    target_path = write_file(tmp_path / "a.service.d/99-my-lockstep.conf", 2**31)
    unit = write_file(tmp_path / "a.service", 2060)
    properties = f"{state}|ActiveEnterTimestamp=@{since}|FragmentPath={unit}|DropInPaths={drop_ins}"
    assert is_outdated(properties.format(files=f"{file} {target_path}")) is older


STARTED = "ActiveState=active|ActiveEnterTimestamp=@2000"


@pytest.mark.parametrize(
    ("at", "line", "older"),
    [
        (2060, "LoadCredential=key:{secret}", True),
        (1940, "LoadCredential=key:{secret}", False),
        (2060, "# LoadCredential=key:{secret}", False),
        # Its owner renews it, and says when Caddy is to read it.
        (2060, "LoadCredential=key:/etc/ssl/yours.key", False),
        (2060, "LoadCredential=key:{secret}.gone", False),
    ],
)
def test_units_sees_a_service_that_is_older_than_a_secret_that_it_was_given(
    tmp_path: Path, is_outdated: OutdatedCheck, at: int, line: str, older: bool
) -> None:
    secret = write_file(tmp_path / "key", at)
    unit = write_file(tmp_path / "a.service", 1, f"[Service]\n{line.format(secret=secret)}\n")
    assert is_outdated(f"{STARTED}|FragmentPath={unit}") is older


@pytest.mark.parametrize(("at", "older"), [(1000, False), (3000, True)])
def test_units_sees_a_service_that_is_older_than_its_variables_of_ours(
    tmp_path: Path, is_outdated: OutdatedCheck, at: int, older: bool
) -> None:
    target_path = write_file(tmp_path / "proxy.env", at)
    foreign_path = write_file(tmp_path.parent / "theirs.env", 3000)
    files = "|".join(
        f"EnvironmentFiles={path} (ignore_errors=no)" for path in (target_path, foreign_path)
    )
    assert is_outdated(f"{STARTED}|FragmentPath=/nonexistent|{files}") is older


@pytest.mark.parametrize(
    ("at", "sub", "older"),
    [(1000, "running", False), (3000, "running", True), (3000, "exited", False)],
)
def test_units_sees_a_service_that_is_older_than_its_program(
    tmp_path: Path, is_outdated: OutdatedCheck, at: int, sub: str, older: bool
) -> None:
    file = write_file(tmp_path / "memory_minimum.py", at)
    properties = f"{STARTED}|SubState={sub}|FragmentPath="
    assert is_outdated(properties, str(file), "/nonexistent") is older


@pytest.mark.parametrize(
    ("name", "sub", "newer"),
    [
        # Settings of the system, and its own file, are not ours to restart it for.
        ("ssh.service", "running", {"settings.d/a": False, "unit": False}),
        # A socket of ours is opened anew, and the GPU's cap set anew.
        ("our.socket", "listening", {"settings.d/a": False, "unit": True}),
        (gpu_sensors.CAP_UNIT, "exited", {"unit": True}),
        # Others that have done their work do it again after a boot.
        ("lockstep-boot.service", "exited", {}),
        # systemd reads a timer whenever it reads its units.
        ("our.timer", "waiting", {}),
    ],
)
def test_units_tells_which_newer_files_a_deploy_restarts_for(
    name: str, sub: str, newer: dict[str, bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "_FOLDER", str(tmp_path))
    write_file(tmp_path / "settings.d/a", 2060)
    unit = write_file(tmp_path / "unit", 2060, f"# {MARK}\n")
    systemd = FakeSystemd(tmp_path / "systemd", monkeypatch)
    values = dict(word.split("=") for word in STARTED.split("|"))
    systemd.unit(name, **values, SubState=sub, FragmentPath=str(unit))
    question = {
        "programs": {name: []},
        "reads": {name: [f"{tmp_path}/settings.d"]},
        "system": ["ssh.service"],
    }
    assert units.read(question)[name]["newer"] == {
        f"{tmp_path}/{path}": restarts for path, restarts in newer.items()
    }


@pytest.mark.parametrize(
    ("service", "socket", "expected_state"),
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
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    service: str,
    socket: str,
    expected_state: str | None,
) -> None:
    systemd = FakeSystemd(tmp_path / "systemd", monkeypatch)
    for unit, words in (("ssh.service", service), ("ssh.socket", socket)):
        if words:
            load, active, file_state = words.split()
            systemd.unit(unit, LoadState=load, ActiveState=active, UnitFileState=file_state)
    monkeypatch.setattr(units, "_links", dict)
    rows = [("system service", "ssh.service", expected_state)] if expected_state else []
    assert list(units.system_services({"services": ["ssh.service"]})) == rows


@pytest.fixture
def socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The address at which Docker is to listen."""
    monkeypatch.setattr(dockers, "SOCKET", tmp_path / "docker.sock")
    return tmp_path / "docker.sock"


def test_images_answers_the_architecture_of_each_digest(socket: Path) -> None:
    references = ["a/b@sha256:1", "a/c@sha256:2"]
    assert dockers.image_architectures(references) == {}
    docker = FakeDocker(socket)
    # An image store may find one by its digest alone.
    docker.images = {name: {"Architecture": "arm64"} for name in references}
    image = {"RepoDigests": references[:1], "RepoTags": ["a/b:lockstep-1"]}
    docker.answers["/images/json"] = [image, {"RepoDigests": None}]
    try:
        assert dockers.image_architectures(references) == {"a/b@sha256:1": "arm64"}
        # One that nothing holds is not as it is to be: a plain prune takes it.
        docker.answers["/images/json"] = [{**image, "RepoTags": ["a/b:theirs"]}]
        assert dockers.image_architectures(references) == {
            "a/b@sha256:1": "arm64, without Lockstep's tag"
        }
    finally:
        docker.close()


def test_an_image_of_a_kept_generation_is_not_told_as_somebodys(socket: Path) -> None:
    """It has a tag of ours, also where no model of today needs it."""
    docker = FakeDocker(socket)
    docker.answers["/images/json"] = [
        {"Id": "sha256:1", "RepoDigests": ["a/b@sha256:1"], "RepoTags": ["a/b:lockstep-1"]},
        {"Id": "sha256:2", "RepoDigests": ["a/b@sha256:2"], "RepoTags": ["theirs:v1"]},
    ]
    try:
        contents = ask("docker.contents", {"images": [], "containers": []})
    finally:
        docker.close()
    assert "a/b:lockstep-1" not in json.dumps(contents) and "theirs:v1" in json.dumps(contents), (
        contents
    )


def test_links_accounts_and_settings_are_what_this_machine_has(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "lib")
    answers = ask("files", {**QUESTION, "paths": [str(link), str(tmp_path)]})
    assert [have["target"] for have in answers.values()] == [str(tmp_path / "lib"), None]
    question = {
        "names": ["root", "nobody", "no-such-user"],
        "groups": ["root", "no-such-group"],
        # The right of an account whose own group it is counts too.
        "rights": ["nogroup", "no-such-group"],
    }
    homes = {name: pwd.getpwnam(name).pw_dir for name in ("root", "nobody")}
    narrow_facts = ask("accounts", {**question, "others": False})
    assert narrow_facts.pop("account shell")
    assert narrow_facts == {
        "account": {"root": "uid 0", "nobody": "uid 65534"},
        "account home": homes,
        "group": {"root": "gid 0"},
        "right": {"nobody in nogroup": "yes"},
    }
    every_fact = ask("accounts", {**question, "others": True, "key": 64 * "0"})
    for kind, items in narrow_facts.items():
        assert every_fact[kind].items() >= items.items()
    settings = {"names": ["kernel.ostype", "no.such"]}
    narrow_facts = ask("machine.settings", {**settings, "others": False})
    assert narrow_facts == {"sysctl": {"kernel.ostype": "Linux"}}
    every_fact = ask("machine.settings", {**settings, "others": True})
    assert every_fact["sysctl"].items() >= narrow_facts["sysctl"].items()
    names = {"names": ["base-files", "no-such-package"]}
    narrow_facts = ask("packages", {**names, "others": False})
    assert list(narrow_facts["apt package"]) == ["base-files"]
    every_fact = ask("packages", {**names, "others": True})
    assert every_fact["apt package"].items() >= narrow_facts["apt package"].items()


def test_a_venv_whose_installation_was_cut_off_counts_as_empty(tmp_path: Path) -> None:
    for name in ("uv-0.9.1", "Ruamel_Yaml-1.0", "half-2.0"):
        folder = tmp_path / f"lib/python3.12/site-packages/{name}.dist-info"
        folder.mkdir(parents=True)
        if not name.startswith("half"):
            (folder / "RECORD").touch()
    folders = [str(tmp_path), "/nonexistent"]
    versions = {"uv": "0.9.1", "ruamel-yaml": "1.0"}
    assert list(ask("environments.package_versions_by_venv", folders).values()) == [versions, {}]
    (tmp_path / "unfinished").touch()
    assert list(ask("environments.package_versions_by_venv", folders).values()) == [{}, {}]


def test_a_package_that_is_half_installed_does_not_count(tmp_path: Path) -> None:
    rows = (
        ("jq", "1.6", "install", "installed"),
        ("git", "2.39", "install", "half-configured"),
        ("rsync", "", "unknown", "not-installed"),
    )
    output = "\n".join("\t".join(row) for row in rows)
    program(tmp_path / "bin", "dpkg-query", f"echo '{output}'; exit 1")
    question = {"names": ["jq", "git", "rsync"], "others": False}
    assert ask("packages", question, tmp_path / "bin") == {
        "apt package": {"jq": "1.6"},
        "apt state": {"git": "half-configured"},
    }


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


def test_engines_answers_versions_origins_commits_and_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "abc/venv/lib/python3.12/site-packages"
    for name in ("torch-2.10.0+cu130", "vllm-0.19.2", "flashinfer_cubin-0.6", "half-1.0"):
        (site / f"{name}.dist-info").mkdir(parents=True)
        (site / f"{name}.dist-info/RECORD").touch()
    (site / "half-1.0.dist-info/RECORD").unlink()
    url = f"file://{tmp_path}/abc/vllm"
    origin = {"url": url, "dir_info": {"editable": True}}
    (site / "vllm-0.19.2.dist-info/direct_url.json").write_text(json.dumps(origin))
    head = source(fork(tmp_path / "abc/vllm"))["commit"]
    (tmp_path / "abc/transformers").mkdir()
    (tmp_path / "abc/check.json").write_text('{"faults": []}')
    (tmp_path / "current").symlink_to("abc")
    (tmp_path / "records").mkdir()
    (tmp_path / "records/sha256-1.json").write_text('{"version": "0.19.1"}')
    (tmp_path / "records/sha256-2.json").write_text('{"versi')
    monkeypatch.setattr(environments, "RECORDS", str(tmp_path / "records"))
    answer = ask(
        "environments",
        {
            "home": str(tmp_path / "abc"),
            "current": str(tmp_path / "current"),
            "images": {"qwen": "sha256:1", "mistral": "sha256:2", "other": "sha256:3"},
        },
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
        "commits": {"vllm": head, "transformers": None},
        "unfinished": False,
        "check": {"faults": []},
        "current": "abc",
        "images": {"qwen": {"version": "0.19.1"}, "mistral": None, "other": None},
    }


def test_marked_answers_modules_of_the_package_at_any_depth(tmp_path: Path) -> None:
    plan = spark()
    question = questions(DesiredState(plan, pins_for(plan)))["files.leftovers"]
    folder = tmp_path / PROGRAMS.strip("/")
    modules = [folder / f"lockstep/onhost/{name}.py" for name in ("engines/left", "left")]
    for path in (*modules, folder / "environments/tools/lib/lockstep.py"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    names = [f"{tmp_path}{name}" for name in question["named"]]
    question = {**question, "marked": [], "named": names, "files": [str(modules[1])]}
    own = {f'"{PROGRAMS}"': f'"{folder}"'}
    leftover_facts = {"leftover": {str(modules[0]): "present"}}
    assert ask("files.leftovers", question, replace=own) == leftover_facts
    # What a deploy removes is nobody else's for diff.
    more = {"others": True, "own": [str(folder / "lockstep")], "allowed": [], "scripts": ""}
    assert ask("files.leftovers", {**question, **more}, replace=own) == leftover_facts
    # Outside our folders a name alone says nothing.
    assert ask("files.leftovers", question) == {}
    modules[0].write_text(f"# {MARK}\n")
    assert ask("files.leftovers", question) == leftover_facts


def test_an_extra_file_that_the_inventory_asks_no_more_is_left_over_unless_somebody_changed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [str(tmp_path / name) for name in ("own.timer", "changed.timer", "wanted.timer")]
    record = {
        **{"digest": "1", "engine": {}, "images": [], "weights": {}},
        "files": [{"path": path, "text": "one\n"} for path in paths],
    }
    host_paths = layout.Paths(tmp_path)
    generations.add_record(host_paths, record)
    for path in paths:
        Path(path).write_text("two\n" if "changed" in path else "one\n")
    monkeypatch.setattr(files.layout, "Paths", lambda *_: host_paths)
    question = {"files": [paths[2]], "marked": [], "named": [], "others": False}
    assert [*files.leftovers(question)] == [("leftover", paths[0], "present")]


def test_what_the_inventory_asks_no_more_is_there_only_where_it_is_ours(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("60-lockstep.conf", "lockstep.list")]
    Path(paths[0]).write_text(f"# {MARK}\n")
    Path(paths[1]).write_text("deb http://mine.example stable main\n")
    answers = ask("files", {**QUESTION, "paths": paths, "absent": paths})
    assert [bool(answers[path]) for path in paths] == [True, False]
    assert file_facts(answers, absent=paths)["leftover"] == {paths[0]: "present"}
