"""Each reader of a host's state, run on this machine or against a temporary tree."""

import getpass
import grp
import hashlib
import json
import os
import pwd
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from a_gpu import AGpu
from a_model import model
from a_probe import ask, program, snapshot_text
from a_repository import fork, source
from a_spark import pins_for, spark
from onhost_fakes import FakeDocker, FakeSystemd

from lockstep.deploy.questions import questions
from lockstep.files.managed_file import PROGRAMS
from lockstep.host.desired_state import DesiredState
from lockstep.onhost import engines, facts
from lockstep.onhost.core import clock, config, errors, layout, runner
from lockstep.onhost.engine import openai_api
from lockstep.onhost.facts import (
    deploy_records,
    environments,
    files,
    gpu_health,
    host_load,
    network,
    reader_helpers,
    tls,
    units,
)
from lockstep.onhost.facts import docker as dockers
from lockstep.onhost.gateway.keys import Entry, entries_document
from lockstep.onhost.records import generations, ownership, watch_findings
from lockstep.onhost.system import gpu_sensors
from lockstep.onhost.system import listeners as kernel_listeners
from lockstep.onhost.system.listeners import SocketOwner
from lockstep.onhost.systemd import units as systemd_units
from lockstep.resources.files import file_facts

USER = getpass.getuser()
GROUP = grp.getgrgid(os.getgid()).gr_name


def test_readers_are_asked_at_once_and_one_that_fails_leaves_the_others(tmp_path):
    (tmp_path / "file").write_text("text\n")
    path = str(tmp_path / "file")
    question: dict[str, Any] = {
        "files": {**QUESTION, "paths": [path], "shown": {path: "another"}},
        "machine.settings": {"names": ["kernel.ostype"], "others": False},
        "environments": {},
        "weights": str(tmp_path / "none"),
    }
    document = json.loads(snapshot_text(question))
    assert document["answers"]["files"][path]["text"] == "text\n"
    assert document["facts"] == {"sysctl": {"kernel.ostype": "Linux"}}
    assert document["answers"]["weights"] == {}
    assert document["faults"] == {"environments": "KeyError: 'home'"}


def test_a_reader_that_ends_its_thread_is_a_fault(monkeypatch):
    monkeypatch.setattr(host_load, "read", sys.exit, raising=False)
    answer = facts.answer_request({"host_load": "no host"})
    assert answer == {"answers": {}, "facts": {}, "faults": {"host_load": "SystemExit: no host"}}


QUESTION: dict[str, Any] = {"key": 32 * "a", "absent": [], "certificates": {}, "authorities": []}


def test_files_answers_kind_text_mode_and_owner(tmp_path):
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


def test_files_never_sends_a_private_text_nor_one_that_is_known(tmp_path):
    path = str(tmp_path / "secret")
    Path(path).write_text("hunter2")
    first_file, second_file = (
        ask("files", {**QUESTION, "paths": [path], "key": 32 * digit})[path] for digit in "ab"
    )
    assert first_file["text"] is None and first_file["seal"] != second_file["seal"]
    known_seals = {path: first_file["seal"]}
    assert ask("files", {**QUESTION, "paths": [path], "shown": known_seals})[path] == first_file
    text = json.dumps([first_file, second_file])
    assert "hunter2" not in text
    # Whoever reads a plain hash tries words until one fits.
    assert hashlib.sha256(b"hunter2").hexdigest()[:32] not in text


def test_units_answers_state_restart_key_and_boot_links(tmp_path, monkeypatch):
    keys = {7: "0123456789abcdef", 0: ""}
    monkeypatch.setattr(units.outdated_units, "running_restart_key", lambda u: keys[u.main_pid])
    links = [tmp_path / f"multi-user.target.{way}/b.service" for way in ("requires", "wants")]
    for link in (*links, links[0].with_name("other.service")):
        link.parent.mkdir(exist_ok=True)
        link.symlink_to("/nonexistent")
    a = {"Id": "a.service", "ActiveState": "active", "LoadState": "loaded"}
    a |= {"MainPID": "7", "NeedDaemonReload": "yes"}
    b = {"Id": "b.service", "ActiveState": "inactive", "LoadState": "not-found", "MainPID": "0"}
    systemd = FakeSystemd(tmp_path / "systemd", monkeypatch)
    for unit in (a, b):
        unit["SubState"] = "dead"
        systemd.unit(unit["Id"], **unit)
    monkeypatch.setattr(units, "_FOLDER", str(tmp_path))
    fixed_fields = {"newer": {}, "settled": True}
    assert ask("units", {"programs": {"a.service": [], "b.service": []}}) == {
        "a.service": {**a, **fixed_fields, "restart_key": "0123456789abcdef", "links": []},
        "b.service": {**b, **fixed_fields, "restart_key": "", "links": list(map(str, links))},
    }


@pytest.mark.parametrize(
    ("state", "age", "is_settled"),
    [
        ("active running success", 5.0, True),
        ("active running success", 4.0, False),
        ("active exited success", 0.0, True),
        ("activating auto-restart success", 9.0, False),
        ("inactive dead success", 0.0, True),
        ("inactive dead exit-code", 0.0, False),
    ],
)
def test_a_unit_is_settled_when_its_start_is_over(state, age, is_settled, tmp_path, monkeypatch):
    monkeypatch.setattr(clock, "now", lambda: 1000.0)
    fields = dict(zip(("ActiveState", "SubState", "Result"), state.split(), strict=True))
    fields["StateChangeTimestampMonotonic"] = f"{1e6 * (1000 - age):.0f}"
    FakeSystemd(tmp_path, monkeypatch).unit("a.service", **fields)
    assert units.read({"programs": {"a.service": ()}})["a.service"]["settled"] is is_settled


def test_a_unit_that_does_not_come_up_is_named_with_its_last_own_line(tmp_path, monkeypatch):
    systemd = FakeSystemd(tmp_path, monkeypatch)
    waits: list[None] = []
    monkeypatch.setattr(clock, "now", lambda: 1000.0 + len(waits))
    monkeypatch.setattr(clock, "sleep", lambda seconds: next(events, lambda: waits.append(None))())
    monkeypatch.setattr(
        units.units, "last_lines", lambda name, count: [f"{name} says why", f"{name}: it ended"]
    )
    running = {"ActiveState": "active", "SubState": "running"}
    again = {"ActiveState": "activating", "SubState": "auto-restart"}
    young = {**running, "StateChangeTimestampMonotonic": "999000000"}
    systemd.unit("good.service", **running, StateChangeTimestampMonotonic="996000000")
    systemd.unit("bad.service", **again, NRestarts="7")
    events = iter(
        (
            lambda: systemd.unit("bad.service", **young, NRestarts="8"),
            lambda: waits.append(None),
            lambda: systemd.unit("bad.service", **again, NRestarts="9"),
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


DROP_IN, SECRET = "a.service.d/60-ours.conf", "ours/secrets/key"
DONE = {"SubState": "exited"}


@pytest.mark.parametrize(
    ("name", "state", "changed_files", "newer"),
    [
        ("a.service", {}, DROP_IN, {DROP_IN: True}),
        ("a.service", {"ActiveState": "inactive"}, DROP_IN, {}),
        # Written, but systemd was not told: it does not name the file yet.
        ("a.service", {"DropInPaths": ""}, "", {DROP_IN: True}),
        # Somebody else's drop-in restarts nothing.
        ("a.service", {}, "a.service.d/99-my.conf", {"a.service.d/99-my.conf": False}),
        # The restart key tells of its own file.
        ("a.service", {}, "unit", {}),
        ("a.service", {}, SECRET, {SECRET: True}),
        # Its owner renews it, and says when Caddy is to read it.
        ("a.service", {}, "yours.key", {}),
        ("a.service", {}, "ours/secrets/in-a-comment", {}),
        ("a.service", {}, "ours/proxy.env", {"ours/proxy.env": True}),
        ("a.service", {}, "theirs.env", {"theirs.env": False}),
        ("a.service", {}, "program.py", {"program.py": True}),
        ("a.service", DONE, "program.py", {}),
        # Settings of the system, and its own file, are not ours to restart it for.
        ("ssh.service", {}, "settings.d/a", {"settings.d/a": False}),
        ("ssh.service", {}, "unit", {"unit": False}),
        # A socket of ours is opened anew, and the GPU's cap set anew.
        ("our.socket", {"SubState": "listening"}, "unit", {"unit": True}),
        (gpu_sensors.CAP_UNIT, DONE, "unit", {"unit": True}),
        # Others that have done their work do it again after a boot.
        ("lockstep-boot.service", DONE, "settings.d/a unit", {}),
        # systemd reads a timer whenever it reads its units.
        ("our.timer", {"SubState": "waiting"}, "settings.d/a unit", {}),
    ],
)
def test_units_tells_files_newer_than_a_unit_and_which_of_them_a_deploy_restarts_for(
    name, state, changed_files, newer, tmp_path, monkeypatch
):
    secrets, credential = f"{tmp_path}/ours/secrets", units._CREDENTIAL.pattern
    credential = credential.replace("/etc/lockstep/secrets", secrets)
    monkeypatch.setattr(units, "_FOLDER", str(tmp_path))
    monkeypatch.setattr(units, "_OURS", f"{tmp_path}/ours/")
    monkeypatch.setattr(units, "_CREDENTIAL", re.compile(credential, re.MULTILINE))
    texts = dict.fromkeys(("a.service.d/99-my.conf", "ours/proxy.env", "theirs.env"), "")
    texts |= dict.fromkeys((SECRET, "ours/secrets/in-a-comment", "yours.key"), "")
    texts |= {"program.py": "", "settings.d/a": "", DROP_IN: f"# {ownership.MARK}\n"}
    lines = [
        "# " + ownership.MARK,
        *(f"LoadCredential=a:{tmp_path}/{file}" for file in (SECRET, "yours.key")),
    ]
    texts["unit"] = "\n".join([*lines, f"# LoadCredential=key:{secrets}/in-a-comment\n"])
    for file, text in texts.items():
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        at = 2060 if file in changed_files.split() else 1940
        os.utime(path, (at, at))
    properties = {
        "ActiveState": "active",
        "SubState": "running",
        "ActiveEnterTimestamp": "@2000",
        "FragmentPath": f"{tmp_path}/unit",
        "DropInPaths": f"{tmp_path}/{DROP_IN} {tmp_path}/a.service.d/99-my.conf",
        "EnvironmentFiles": [
            f"{tmp_path}/{file} (ignore_errors=no)" for file in ("ours/proxy.env", "theirs.env")
        ],
    }
    FakeSystemd(tmp_path / "systemd", monkeypatch).unit(name, **{**properties, **state})
    question = {
        "programs": {name: [f"{tmp_path}/program.py", "/nonexistent"]},
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
        ("loaded inactive enabled", "", "inactive"),
        ("masked inactive masked", "", "inactive, masked"),
        # Nothing can enable it.
        ("loaded active static", "", "on"),
        ("not-found inactive -", "", None),
        # Ubuntu's sshd: its socket is enabled, and waits before the first login.
        ("loaded inactive disabled", "loaded active enabled", "on"),
        # Debian has that socket, too, and leaves it off.
        ("loaded active disabled", "loaded inactive disabled", "off at boot"),
    ],
)
def test_a_service_of_the_system_is_on_where_it_runs_and_comes_with_a_boot(
    tmp_path, monkeypatch, service, socket, expected_state
):
    systemd = FakeSystemd(tmp_path / "systemd", monkeypatch)
    for unit, words in (("ssh.service", service), ("ssh.socket", socket)):
        if words:
            load, active, file_state = words.split()
            systemd.unit(unit, LoadState=load, ActiveState=active, UnitFileState=file_state)
    monkeypatch.setattr(units, "_links", dict)
    rows = [("system service", "ssh.service", expected_state)] if expected_state else []
    assert list(units.system_services({"services": ["ssh.service"]})) == rows


@pytest.fixture
def docker(tmp_path, monkeypatch):
    monkeypatch.setattr(dockers, "SOCKET", tmp_path / "docker.sock")
    docker = FakeDocker(tmp_path / "docker.sock")
    yield docker
    docker.close()


def test_images_answers_the_architecture_of_each_digest(docker):
    references = ["a/b@sha256:1", "a/c@sha256:2"]
    # An image store may find one by its digest alone.
    docker.images = {name: {"Architecture": "arm64"} for name in references}
    image = {"RepoDigests": references[:1], "RepoTags": ["a/b:lockstep-1"]}
    docker.answers["/images/json"] = [image, {"RepoDigests": None}]
    assert dockers.image_architectures(references) == {"a/b@sha256:1": "arm64"}
    # One that nothing holds is not as it is to be: a plain prune takes it.
    docker.answers["/images/json"] = [{**image, "RepoTags": ["a/b:theirs"]}]
    assert dockers.image_architectures(references) == {
        "a/b@sha256:1": "arm64, without Lockstep's tag"
    }
    docker.close()
    assert dockers.image_architectures(references) == {}


def test_an_image_of_a_kept_generation_is_not_told_as_somebodys(docker):
    """It has a tag of ours, also where no model of today needs it."""
    docker.answers["/images/json"] = [
        {"Id": "sha256:1", "RepoDigests": ["a/b@sha256:1"], "RepoTags": ["a/b:lockstep-1"]},
        {"Id": "sha256:2", "RepoDigests": ["a/b@sha256:2"], "RepoTags": ["theirs:v1"]},
    ]
    contents = json.dumps(ask("docker.contents", {"images": [], "containers": []}))
    assert "a/b:lockstep-1" not in contents and "theirs:v1" in contents


def test_accounts_settings_and_packages_are_what_this_machine_has():
    accounts = {
        "names": ["root", "nobody", "no-such-user"],
        "groups": ["root", "no-such-group"],
        # The right of an account whose own group it is counts too.
        "rights": ["nogroup", "no-such-group"],
        "key": 64 * "0",
    }
    narrow_facts = {}
    for reader, question in (
        ("accounts", accounts),
        ("machine.settings", {"names": ["kernel.ostype", "no.such"]}),
        ("packages", {"names": ["base-files", "no-such-package"]}),
    ):
        facts = ask(reader, {**question, "others": False})
        every_fact = ask(reader, {**question, "others": True})
        for kind, items in facts.items():
            assert kind == "account shell" or every_fact[kind].items() >= items.items()
        narrow_facts |= facts
    assert narrow_facts.pop("account shell")
    assert list(narrow_facts.pop("apt package")) == ["base-files"]
    assert narrow_facts == {
        "account": {"root": "uid 0", "nobody": "uid 65534"},
        "account home": {name: pwd.getpwnam(name).pw_dir for name in ("root", "nobody")},
        "group": {"root": "gid 0"},
        "right": {"nobody in nogroup": "yes"},
        "sysctl": {"kernel.ostype": "Linux"},
    }


def test_a_venv_whose_installation_was_cut_off_counts_as_empty(tmp_path):
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


def test_a_package_that_is_half_installed_does_not_count(tmp_path):
    rows = "jq 1.6 install installed\ngit 2.39 install half-configured\nvi  unknown not-installed"
    output = rows.replace(" ", "\t")
    program(tmp_path / "bin", "dpkg-query", f"echo '{output}'; exit 1")
    question = {"names": ["jq", "git", "vi"], "others": False}
    assert ask("packages", question, tmp_path / "bin") == {
        "apt package": {"jq": "1.6"},
        "apt state": {"git": "half-configured"},
    }


def test_engines_answers_versions_origins_commits_and_records(tmp_path, monkeypatch):
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
    images = {"qwen": "sha256:1", "mistral": "sha256:2", "other": "sha256:3"}
    question = {"home": f"{tmp_path}/abc", "current": f"{tmp_path}/current", "images": images}
    versions = {"torch": "2.10.0+cu130", "vllm": "0.19.2", "flashinfer-cubin": "0.6"}
    origins = {"vllm": {"url": url, "editable": True}}
    assert ask("environments", question) == {
        "environment": {"python": "3.12", "distributions": versions, "origins": origins},
        "commits": {"vllm": head, "transformers": None},
        "unfinished": False,
        "check": {"faults": []},
        "current": "abc",
        "images": {"qwen": {"version": "0.19.1"}, "mistral": None, "other": None},
    }
    # A wiped host.
    answer = ask("environments", {"home": f"{tmp_path}/none", "current": f"{tmp_path}/none/x"})
    environment = {"python": None, "distributions": {}, "origins": {}}
    assert (answer["environment"], answer["check"], answer["current"]) == (environment, None, None)


def test_marked_answers_modules_of_the_package_at_any_depth(tmp_path, monkeypatch):
    plan = spark()
    question = questions(DesiredState(plan, pins_for(plan)))["files.leftovers"]
    folder = tmp_path / PROGRAMS.strip("/")
    modules = [folder / f"lockstep/onhost/{name}.py" for name in ("engines/left", "left")]
    for path in (*modules, folder / "environments/tools/lib/lockstep.py"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    names = [f"{tmp_path}{name}" for name in question["named"]]
    question = {**question, "marked": [], "named": names, "files": [str(modules[1])]}
    # Outside our folders a name alone says nothing.
    assert ask("files.leftovers", question) == {}
    leftover_facts = {"leftover": {str(modules[0]): "present"}}
    with monkeypatch.context() as patch:
        patch.setattr(ownership, "HOMES", [str(folder)])
        assert ask("files.leftovers", question) == leftover_facts
        # What a deploy removes is nobody else's for diff.
        more = {"others": True, "own": [str(folder / "lockstep")], "allowed": [], "scripts": ""}
        assert ask("files.leftovers", {**question, **more}) == leftover_facts
    modules[0].write_text(f"# {ownership.MARK}\n")
    assert ask("files.leftovers", question) == leftover_facts


def test_an_extra_file_that_the_inventory_asks_no_more_is_left_over_unless_somebody_changed_it(
    tmp_path, monkeypatch
):
    paths = [str(tmp_path / name) for name in ("own.timer", "changed.timer", "wanted.timer")]
    record = {"digest": "1", "engine": {}, "images": [], "weights": {}}
    record["files"] = [{"path": path, "text": "one\n"} for path in paths]
    host_paths = layout.Paths(tmp_path)
    generations.add_record(host_paths, record)
    for path in paths:
        Path(path).write_text("two\n" if "changed" in path else "one\n")
    monkeypatch.setattr(files.layout, "Paths", lambda *_: host_paths)
    question = {"files": [paths[2]], "marked": [], "named": [], "others": False}
    assert [*files.leftovers(question)] == [("leftover", paths[0], "present")]


def test_what_the_inventory_asks_no_more_is_there_only_where_it_is_ours(tmp_path):
    paths = [str(tmp_path / name) for name in ("60-lockstep.conf", "lockstep.list")]
    Path(paths[0]).write_text(f"# {ownership.MARK}\n")
    Path(paths[1]).write_text("deb http://mine.example stable main\n")
    answers = ask("files", {**QUESTION, "paths": paths, "absent": paths})
    assert [bool(answers[path]) for path in paths] == [True, False]
    assert file_facts(answers, absent=paths)["leftover"] == {paths[0]: "present"}


KEY = "00" * 32
ANNA = Entry("anna", "2026-11-01T10:00:00Z", 64 * "a")


@pytest.fixture
def paths(tmp_path, monkeypatch) -> layout.Paths:
    paths = layout.Paths(tmp_path)
    monkeypatch.setattr(layout, "Paths", lambda: paths)
    return paths


def record_generation(paths: layout.Paths, digest: str) -> Path:
    """The host brought to a generation with one unit, which is returned, and one engine."""
    unit, engines = paths.root / f"{digest}.service", paths.root / "engines"
    (engines / digest).mkdir(parents=True, exist_ok=True)
    (engines / "current").unlink(missing_ok=True)
    (engines / "current").symlink_to(engines / digest)
    unit.write_text(f"{digest}\n")
    unit.chmod(0o644)
    file = {"path": str(unit), "text": f"{digest}\n", "mode": "0644", "owner": USER, "group": GROUP}
    contents = {"images": [], "weights": {}, "files": [file], "lock": "l", "digest": digest}
    engine = {"folder": str(engines), "id": digest}
    generations.add_record(paths, {**contents, "engine": engine})
    return unit


def test_each_difference_from_a_record_is_named(paths):
    unit = record_generation(paths, "aaaa")
    differences = deploy_records.differences_from_generation
    assert differences("aaaa") == []
    assert differences("bbbb") == ["no record of the generation bbbb"]
    unit.write_text("by hand\n")
    unit.chmod(0o600)
    text, mode = differences("aaaa")
    assert text == f"{unit}: another text" and "not 0644" in mode
    unit.unlink()
    assert differences("aaaa") == [f"{unit}: No such file or directory"]
    record_generation(paths, "bbbb")
    newest, _, current = differences("aaaa")
    assert newest == "the newest record is generation 2, another one"
    assert current.endswith("leads to bbbb, not to aaaa")


def test_changes_of_persons_keys_leave_the_host_without_their_hashes(paths):
    assert deploy_records.sealed_key_changes_and_fault(KEY) == {"changes": {}, "fault": ""}
    path = paths.gateway_keys
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(entries_document([ANNA])))
    facts = deploy_records.sealed_key_changes_and_fault(KEY)
    ((since, is_revoked, _),) = facts["changes"].values()
    assert (since, is_revoked) == (ANNA.since, False)
    assert str(ANNA.sha256) not in json.dumps(facts)
    path.write_text("{")
    assert "expected a JSON document" in deploy_records.sealed_key_changes_and_fault(KEY)["fault"]


@pytest.fixture
def card(tmp_path, monkeypatch) -> AGpu:
    """A GPU, and a host of which the watch has nothing to tell."""
    paths = layout.Paths(tmp_path / "root")
    monkeypatch.setattr(layout, "Paths", lambda: paths)
    monkeypatch.setattr(gpu_health, "_HWMON", str(tmp_path / "hwmon"))
    return AGpu(tmp_path / "gpu", monkeypatch)


def gpu_findings(most: int | None = None) -> dict[str, object]:
    facts_of_diff = gpu_health.findings({"max_clock_mhz": most})
    return {item: value for kind, item, value in facts_of_diff if kind == "gpu"}


def test_diff_shows_what_the_watch_found_and_a_cap_that_is_lost_before_the_watch_does(card):
    assert gpu_findings() == {}
    record = watch_findings.GpuRecord({"gpu-hot": "the GPU is held down"})
    watch_findings.save(layout.Paths(), record)
    hot = {"gpu-hot": "the GPU is held down"}
    card.shows(clock=2418)
    assert gpu_findings() == hot
    lost_cap = {"gpu-cap": "the clock is 2418 MHz, above its cap of 2100 MHz"}
    assert gpu_findings(2100) == hot | lost_cap
    card.shows(clock=2080)
    assert gpu_findings(2100) == hot


def test_evidence_has_every_figure_and_the_rails_where_a_driver_tells_them(card, tmp_path):
    card.shows(watts=38.5, clock=2418, celsius=68, utilization=96, reasons=["hw_slowdown"])
    rails = {"power1_label": "sys_total", "power1_input": "61250000", "power11_label": "pl1"}
    sensors = {"acpitz": {"temp1_input": "40000"}, "spbm": {**rails, "prochot": "0"}}
    for name, contents in sensors.items():
        folder = tmp_path / "hwmon" / name
        folder.mkdir(parents=True)
        for file, content in {"name": name, **contents}.items():
            (folder / file).write_text(f"{content}\n")
    evidence = {item: value for _, item, value in gpu_health.sensor_values(None)}
    assert (evidence["power W"], evidence["held down by"]) == (38.5, "hardware slow-down")
    rails = [evidence[item] for item in ("rail sys_total W", "rail pl1 W", "prochot")]
    assert rails == [61.25, "not told", "0"]
    # Without a driver it says so.
    card.program.write_text("#!/bin/sh\nexit 9\n")
    evidence = {item: value for _, item, value in gpu_health.sensor_values(None)}
    assert evidence["power W"] == evidence["held down by"] == "not told"


UNIT = "vllm-qwen36.service"
LINE = "2026-11-22T21:04:0{}.123456+0000 spark-1 vllm[9]: WARNING [jit_monitor.py:135] {}"
COMPILED = "Triton kernel JIT compilation during inference: fused_moe_kernel."
LINES = [
    LINE.format(second, message)
    for second, message in enumerate((COMPILED, COMPILED, "Avg prompt throughput"))
]


def compiler_line(folder: Path, monkeypatch: pytest.MonkeyPatch, engine: str, journal: str) -> Any:
    """The last line about a compiler where the journal does this."""
    FakeSystemd(folder / "systemd", monkeypatch).unit(UNIT, ActiveState="active")
    program(folder / "bin", "journalctl", journal)
    models = folder / "models.json"
    models.write_text(json.dumps({"models": {"qwen": {"unit": UNIT}}}))
    monkeypatch.setenv("PATH", f"{folder}/bin:/usr/bin:/bin")
    monkeypatch.setattr(host_load, "_LOOK_S", 0.0)
    pattern = engines.ENGINES[engine].compile_pattern
    return host_load.read({"models": str(models), "compiler_pattern": pattern})["compiler_line"]


@pytest.mark.parametrize(
    ("engine", "journal", "line"),
    [
        ("vllm", "\n".join(f"echo '{line}'" for line in LINES), LINES[1]),
        ("vllm", "true", ""),
        ("vllm", "exit 1", None),
        ("llamacpp", f"echo '{COMPILED}'", None),
    ],
)
def test_the_last_kernel_that_a_request_waited_for(tmp_path, monkeypatch, engine, journal, line):
    assert compiler_line(tmp_path, monkeypatch, engine, journal) == line


def test_a_model_that_runs_is_told_with_its_requests_where_its_engine_answers(monkeypatch):
    states = {"qwen.service": "hot", "other.service": "off"}
    models = {name: model(name, unit=f"{name}.service") for name in ("qwen", "other")}
    monkeypatch.setattr(config, "load_host", lambda _: SimpleNamespace(models=models))
    unit_states = {name: SimpleNamespace(state=state) for name, state in states.items()}
    monkeypatch.setattr(systemd_units, "units_by_name", lambda _: unit_states)
    answers = iter(["running 2\nvllm:num_requests_waiting 1\nvllm:generation_tokens_total 5\n"])

    def ask(*_: Any) -> Any:
        for answer in answers:
            return engines.counters(f"vllm:num_requests_{answer}")
        raise openai_api.NotReady("no answer")

    monkeypatch.setattr(openai_api, "counters", ask)
    assert host_load.hot_models(None) == {"qwen.service": {"name": "qwen", "requests": 3}}
    assert host_load.hot_models(None) == {"qwen.service": {"name": "qwen", "requests": None}}

    def lack_file(_: Any) -> None:
        raise errors.Problem("no such file")

    monkeypatch.setattr(config, "load_host", lack_file)
    assert host_load.hot_models(None) == {}, "a host without a deploy"


SOCKETS = """\
127.0.0.1:8090                      lockstep-gateway.socket         lockstep-gateway.service
[::]:22                             ssh.socket                      ssh.service
/run/lockstep-gateway-switch.sock   lockstep-gateway-switch.socket  -
kobject-uevent 1                    systemd-udevd-kernel.socket     systemd-udevd.service
"""


def test_a_port_that_systemd_holds_for_a_service_that_does_not_run_is_its_socket_s(monkeypatch):
    sockets = [
        SocketOwner("tcp", "127.0.0.1", 8090, 0, (1,)),
        SocketOwner("tcp", "::", 22, 0, (1,)),
        # The youngest process that has it counts: the service, while it runs.
        SocketOwner("tcp", "127.0.0.1", 30000, 0, (4711, 1)),
        SocketOwner("tcp", "127.0.0.1", 53, 0, (4711,)),
    ]
    files = {
        "/proc/1/cgroup": "0::/init.scope\n",
        "/proc/1/comm": "systemd",
        "/proc/4711/cgroup": "0::/system.slice/lockstep-gateway.service",
        "/proc/4711/comm": "python",
    }
    monkeypatch.setattr(network.kernel_listeners, "listeners", lambda: sockets)
    answer = subprocess.CompletedProcess([], 0, SOCKETS, "")
    monkeypatch.setattr(runner, "run", lambda *_, **__: answer)
    monkeypatch.setattr(network, "text", files.get)
    monkeypatch.setattr(network, "is_marked", lambda path: path.name.startswith("lockstep-"))
    answers = network.listeners([8090, 22, 30000])
    owners = {port: (listener["process"], listener["ours"]) for port, listener in answers.items()}
    expected_owners = {"8090": ("systemd", True), "22": ("systemd", False)}
    assert owners == {**expected_owners, "30000": ("python", True)}


def test_the_link_s_addresses_and_mtu_are_told_where_its_cable_is_plugged_in(tmp_path, monkeypatch):
    addresses = [{"local": "10.77.0.11", "prefixlen": 24}, {"local": "fe80::1", "prefixlen": 64}]
    up = {"mtu": 9000, "flags": ["UP", "LOWER_UP"]}
    links = [
        {"ifname": "enp1s0f0np0", **up, "addr_info": addresses},
        {"ifname": "enP2p1s0f0np0", **up, "addr_info": []},
        {"ifname": "enP7s7", "mtu": 1500, "flags": ["UP", "NO-CARRIER"], "addr_info": addresses},
    ]
    (tmp_path / "links").write_text(json.dumps(links))
    program(tmp_path, "ip", f'test "$*" = "-json address show" && cat {tmp_path}/links')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    link_facts = [fact[1:] for fact in network.fabric({}) if fact[0] == "fast link"]
    assert link_facts == [
        ("enp1s0f0np0 MTU", 9000),
        ("enp1s0f0np0 addresses", "10.77.0.11/24 fe80::1/64"),
        ("enP2p1s0f0np0 MTU", 9000),
        ("enP2p1s0f0np0 addresses", "none"),
    ]
    names = [item for kind, item, _ in network.fabric({}) if kind == "interface"]
    assert names == [link["ifname"] for link in links]


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_listening_socket_is_found_with_its_processes_and_account_and_no_connection(address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as server:
        port = server.getsockname()[1]
        # Another process has it too.
        child = os.fork()
        if not child:
            os.read(os.pipe()[0], 1)
            os._exit(0)
        try:
            [listener] = kernel_listeners.listeners_at_port(port)
        finally:
            os.kill(child, 9)
            os.waitpid(child, 0)
        assert (listener.protocol, listener.address, listener.uid) == ("tcp", address, os.geteuid())
        assert {os.getpid(), child} <= set(listener.processes)
        with socket.create_connection((address, port)) as client:
            assert kernel_listeners.listeners_at_port(client.getsockname()[1]) == []
    assert kernel_listeners.listeners_at_port(port) == []


NAME = "spark-1.tail1234.ts.net"


def make_certificate(folder: Path, name: str = "spark", days: int = 90) -> dict[str, str]:
    """A certificate with its key, in two files."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    argv += ["-nodes", "-days", str(days), "-subj", f"/CN={name}"]
    subprocess.run([*argv, "-keyout", key, "-out", certificate], capture_output=True, check=True)
    return {"certificate": str(certificate), "key": str(key)}


def test_a_certificate_with_its_key_is_good_until_it_ends(tmp_path):
    question: dict[str, Any] = make_certificate(tmp_path)
    assert tls.read(question) == {"fault": "", "days": 89}
    assert list(tls.findings(question)) == []
    question["now"] = time.time() + 69.5 * 86400
    assert tls.read(question) == {"fault": "", "days": 20}
    assert [value for _, _, value in tls.findings(question)] == ["ends in 20 days"]
    question["now"] = time.time() + 90 * 86400 + 1
    ((_, _, message),) = tls.findings(question)
    assert "has ended on" in str(message)


def test_what_is_missing_does_not_fit_or_is_no_certificate_is_named(tmp_path):
    good, other_certificate = make_certificate(tmp_path), make_certificate(tmp_path, "other")
    junk = tmp_path / "junk.pem"
    junk.write_text("no certificate\n")
    for words, question in (
        ("the key does not belong to it", {**good, "key": other_certificate["key"]}),
        ("/gone.key: No such file", {**good, "key": str(tmp_path / "gone.key")}),
        ("/gone.pem: No such file", {**good, "certificate": str(tmp_path / "gone.pem")}),
        ("junk.pem with ", {**good, "certificate": str(junk)}),
    ):
        fault = tls.read(question)["fault"]
        assert words in fault
        assert [value for _, _, value in tls.findings(question)] == [fault]


def test_an_authority_needs_openssl_and_where_none_is_wanted_nothing_is_wrong(monkeypatch):
    assert tls.read({}) == {"fault": "", "days": None}
    assert list(tls.findings({})) == []
    assert tls.read({"own": True})["fault"] == ""
    monkeypatch.setenv("PATH", "/nonexistent")
    assert "no openssl" in tls.read({"own": True})["fault"]


def tailscale_fault(name: str = NAME) -> str:
    return str(tls.read({"tailscale": [name]})["fault"])


def test_tailscale_s_is_good_where_its_daemon_gives_it_to_caddy(tmp_path, monkeypatch):
    variables = {}
    unit = systemd_units.Unit("tailscaled.service", main_pid=7)
    monkeypatch.setattr(systemd_units, "units_by_name", lambda _: {"tailscaled.service": unit})
    monkeypatch.setattr(tls.process_liveness, "variables", {7: variables}.get)
    # Its local interface speaks as Docker's does.
    daemon = FakeDocker(tmp_path / "tailscaled.sock")
    daemon.answers["/localapi/v0/status"] = {"CertDomains": [NAME]}
    monkeypatch.setattr(tls, "_TAILSCALED", str(daemon.path))
    assert "TS_PERMIT_CERT_UID=caddy into /etc/default/tailscaled" in tailscale_fault()
    variables["TS_PERMIT_CERT_UID"] = "caddy"
    assert tailscale_fault() == ""
    other_name = "spark-2.x.ts.net"
    assert f"no certificate for {other_name}, but for {NAME}" in tailscale_fault(other_name)
    daemon.answers["/localapi/v0/status"] = {"CertDomains": None}
    assert "enable HTTPS in its admin console" in tailscale_fault()
    daemon.close()
    assert "tailscaled does not answer at" in tailscale_fault()
