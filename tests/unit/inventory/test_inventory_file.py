"""Wrong input gives one clear error that names file, key, what was found and what is allowed."""

import os
import re
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
from a_spark import pins_for
from an_inventory import ANNA, copy_repository, write_inventory
from forked_pyinfra import PATH, pyinfra

from lockstep.cli.main import main
from lockstep.core.errors import InventoryError
from lockstep.host.desired_state import DesiredState
from lockstep.inventory import inventory_file as inventory
from lockstep.inventory.host import HostPlan

REPOSITORY = Path(__file__).parents[3]
LAST_LINE = (REPOSITORY / "group_data/all.py").read_text().count("\n")
SHIPPED = "mistral-small-4-119b-nvfp4-vllm-fork"
DEPLOY = ("-y", "inventories/site.py", "deploy.py")
END = "Nothing was contacted and nothing was changed.\n"


#: Data of a host, or a file and the text to append to it.
Damage = dict[str, Any] | tuple[str, str]


MODEL = {"recipe": "a", "unit": "q"}

# The whole message ("…" at its end stands for the allowed values, or for the remedy) → the fault.
# First each kind of wrong input that a user of pyinfra is promised a clear error for.
PROMISED_FAULTS: dict[str, Damage] = {
    f"group_data/all.py:{LAST_LINE + 1}: unknown key 'torch_version'; allowed: accept_licences,…": (
        *("group_data/all.py", 'torch_version = "2.10"\n'),
    ),
    "site.py:5: nothing reads 'models' at the top of an inventory; allowed: 'models' in a host…": (
        *("inventories/site.py", "models = {}\n"),
    ),
    "site.py:2: models.q.recipe names an unknown recipe; found 'qwen3.6'; allowed: a, b,…": {
        "models": {"q": {"recipe": "qwen3.6", "unit": "q"}}
    },
    "REPOSITORY/few/a.yaml:7: the file is not valid YAML; found expected the node content, but "
    "found '<stream end>'. Correct that line.": ("few/a.yaml", "env: [\n"),
    f"all.py:{LAST_LINE + 1}: not valid Python: invalid syntax.": (
        *("group_data/all.py", "models = = {}\n"),
    ),
}
FAULTS: dict[str, Damage] = {
    "group_data/site.py:1: 'models' is imported, and pyinfra drops names that are…": (
        *("group_data/site.py", "from group_data.all import models\nmodels = {**models}\n"),
    ),
    # The last value counts, and its part has a line of its own.
    "group_data/site.py:3: unknown key 'prot' in webui. Did you mean 'port'? Allowed:…": (
        *("group_data/site.py", "webui = {}\nwebui = {\n    'prot': 1,\n}\n"),
    ),
    # The value that a person changed is named, and not the default that it meets.
    "site.py:2: webui.port: port 30001 is used twice; found also by models.qwen.port…": {
        "webui": {"port": 30001}
    },
    "REPOSITORY/nowhere: the recipe folder does not exist.": {"recipe_folders": ("nowhere",)},
    "REPOSITORY/group_data/site.py: the file is not UTF-8 text.": (
        *("group_data/site.py", "# \udcff\n"),
    ),
}


RECIPE = """\
recipe_version: "2"
model: Qwen/Qwen3-1.7B
runtime: vllm
container: an/image:1
defaults: {port: %d}
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of all files that a deploy reads."""
    return copy_repository(tmp_path_factory.mktemp("whole"), has_bytecode=False)


@pytest.fixture
def repository(tmp_path: Path, whole: Path) -> Path:
    """The same files, to be damaged."""
    shutil.copytree(whole, tmp_path, symlinks=True, copy_function=os.link, dirs_exist_ok=True)
    (tmp_path / "few").mkdir()
    for name, port in {"a": 8000, "b": 8001}.items():
        (tmp_path / f"few/{name}.yaml").write_text(RECIPE % port)
    return tmp_path


def is_told(message: str, output: str, repository: Path) -> bool:
    """Tell whether a terminal shows a whole message, then the outcome, wherever lines end."""
    texts = (output, message.replace("REPOSITORY/", f"{repository}/"), END)
    joined_output, error, end = ("".join(text.split()) for text in texts)
    _, begin, tail = joined_output.partition(error.removesuffix("…"))
    return bool(begin) and end in tail and (tail.startswith(end) is not error.endswith("…"))


def damage(repository: Path, fault: Damage, port: int = 22) -> Path:
    """Write an inventory with this fault, or damage another file of the copy; its path."""
    path = repository / "inventories/site.py"
    path.write_text(
        "from lockstep.deploy.checked import checked\n"
        f"host = {fault if isinstance(fault, dict) else {'models': {'q': MODEL}}}\n"
        f'site = {{"recipe_folders": ("few",), "ssh_port": {port}}}\n'
        'site = checked(__file__, [("127.0.0.1", {**site, **host})])\n'
    )
    if isinstance(fault, tuple):
        damaged_path = repository / fault[0]
        earlier_text = damaged_path.read_text() if damaged_path.exists() else ""
        # The file itself is every test's.
        damaged_path.unlink(missing_ok=True)
        damaged_path.write_text(earlier_text + fault[1], errors="surrogateescape")
    return path


@pytest.mark.parametrize(("message", "fault"), [*PROMISED_FAULTS.items(), *FAULTS.items()])
def test_a_fault_is_named_with_file_key_and_what_is_allowed(message, fault, repository, capsys):
    with pytest.raises(SystemExit) as error:
        inventory.load(damage(repository, fault))
    assert error.value.code == 2
    output = capsys.readouterr()
    assert is_told(message, output.err, repository), output.err
    assert output.out == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("message", "fault"),
    [
        *PROMISED_FAULTS.items(),
        ("site.py:5: not valid Python: '[' was never closed.", ("inventories/site.py", "a = [\n")),
        (
            "templates/units/model.service.j2: a template value is missing; found 'x' is…",
            ("templates/units/model.service.j2", "# {{ x }}\n"),
        ),
    ],
)
def test_pyinfra_ends_before_it_connects(message: str, fault: Damage, repository: Path) -> None:
    # A program that is damaged is one of the copy.
    programs = f"{repository}:{PATH}" if message.startswith("templates") else PATH
    with socket.create_server(("127.0.0.1", 0)) as server:
        damage(repository, fault, server.getsockname()[1])
        result = pyinfra(*DEPLOY, folder=repository, path=programs)
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
    output = result.stdout + result.stderr
    assert is_told(message, output, repository), output
    assert "Traceback" not in output and "internal exception" not in output
    assert result.returncode == 2


MANY = f"""\
from lockstep.deploy.checked import checked
operatrs = ("me",)
models = None
_model = {{"recipe": "{SHIPPED}", "unit": "q"}}
_near = "{SHIPPED}"[:-1]
site = checked(__file__, [
    ("127.0.0.1", {{
        "ssh_port": 22,
        "operatrs": ("me",),
        "firewall": {{"open": "tcp/80", "ssh_ports": (0,)}},
        "gateway": {{"bind": "0.0.0.0", "peers": ("127.0.0.3",)}},
        "boot": "nightly",
        "accept_licences": ("apache-2.0",),
        "differs": ("apt packge htop",),
        "backup": {{"enabled": True, "to": ("peer",), "to": ("peer",)}},
        "models": {{
            "q": _model,
            "r": {{**_model, "recipe": _near}},
            "s": {{**_model, "unit": "s", "port": 8009, "sense": "answrs"}},
            "t": {{**_model, "unit": "t", "cluster": "pair", "aliases": ("q",)}},
        }},
    }}),
    ("127.0.0.2", {{"lock": "other.lock.yaml", "waive": ("clok",)}}),
    ("127.0.0.2", {{"lock": "other.lock.yaml"}}),
])
"""

# In the order of the file: of each line the beginning of what is said.
SAID = """\
site.py: pyinfra would take 'operatrs' for a group of hosts
site.py: the hosts of one inventory have one lock
site.py:3: nothing reads 'models' at the top of an inventory
site.py:9: unknown key 'operatrs'. Did you mean 'operators'? Allowed: accept_licences,
site.py:10: firewall.open must be a list; found 'tcp/80'. Write ('tcp/80',): the comma makes it
site.py:10: firewall.ssh_ports[0] is not a port; found 0
site.py:11: gateway.bind is open to other machines without TLS
site.py:11: gateway.peers of 127.0.0.1 names hosts that the inventory does not have
site.py:12: boot names no model; found 'nightly'
site.py:13: accept_licences[0] is no licence that SPDX or a recipe names; found 'apache-2.0'. Did
site.py:14: differs names no kind of fact; found 'apt packge htop'. Did you mean 'apt package'?
site.py:15: key 'to' stands twice in one mapping
site.py:15: backup.to of 127.0.0.1 is "peer", and fabric_address is no IP
site.py:18: models.r.unit is used twice; found 'q', also in models.q
site.py:18: models.r.recipe names an unknown recipe; found 'NEAR'. Did you mean 'SHIPPED'?
site.py:19: models.s.sense is not known; found 'answrs'. Did you mean 'answers'? Allowed: answers,
site.py:20: models.t.cluster names an unknown cluster; found 'pair'
site.py:20: models.t.port: port 8000 is used twice; found also by models.q.port
site.py:20: models.t.aliases[0] is the name of something else; found 'q': models.q
site.py:24: a host is listed twice; found 127.0.0.2
""".replace("NEAR", SHIPPED[:-1]).replace("SHIPPED", SHIPPED)


def mistakes(output: str) -> list[str]:
    """Each mistake of an output as far as `SAID` has it; its lines are filled to the terminal."""
    texts = re.split(r" (?=site\.py(?::\d+)?: )", f" {' '.join(output.split())}")[1:]
    lengths = [len(line) for line in SAID.splitlines()]
    return [text[:length] for text, length in zip(texts, lengths, strict=True)]


def test_mistakes_of_every_kind_come_at_once_in_the_order_of_the_file(repository: Path, capsys):
    path = repository / "inventories/site.py"
    path.write_text(MANY)
    with pytest.raises(SystemExit) as error:
        main(["plan", "-i", str(path)])
    assert error.value.code == 2
    output = capsys.readouterr().err
    assert mistakes(output) == SAID.splitlines()
    assert output.endswith(f"\n20 mistakes.\n{END}")


def test_an_inventory_that_raises_is_named_with_the_line_and_one_that_prints_is_heard(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "inventory.py"
    path.write_text("print('one')\ninventory = ['10.0.0.1']\n")
    assert inventory.load(path)
    # Standard output is the command's, and may be read by a program.
    assert tuple(capsys.readouterr()) == ("", "one\n")
    path.write_text("def user():\n    return {}['USER']\n\nuser()\n")
    with pytest.raises(InventoryError) as no:
        inventory.load(path)
    assert no.value.where == f"{path}:2"
    # An end with 0 would end a command as if all was well.
    path.write_text("import sys\nsys.exit(0)\n")
    with pytest.raises(InventoryError, match="fails when it is read; found SystemExit: 0"):
        inventory.load(path)


def test_what_depends_on_a_wrong_value_is_not_judged(repository: Path) -> None:
    """A login of a server whose address is wrong, a boot into a model that is, its cluster.

    What two hosts share is said once, at the line where it stands.
    """
    path = repository / "inventories/site.py"
    path.write_text(
        "_both = {'monitoring': True}\n"
        "_pair = {'pair': {'hosts': ('10.0.0.1', '10.0.0.2')}}\n"
        f"_q = {{'recipe': '{SHIPPED}', 'unit': 'q', 'cluster': 'pair'}}\n"
        "site = [\n"
        "    ('10.0.0.1', {\n"
        "        'source': {'python_index': 'http://index.lan/simple'},\n"
        "        'logins': {'http://index.lan': {'file': '~/login'}},\n"
        "        'boot': 'q', **_both,\n"
        "        'clusters': _pair,\n"
        "        'fabric_address': 'nowhere!',\n"
        "        'models': {'q': {**_q, 'prot': 8000}, 'r': {**_q, 'unit': 'r', 'recipe': 'x'}},\n"
        "    }),\n"
        "    ('10.0.0.2', {'clusters': {'piar': 1}, 'boot': 'r', **_both}),\n"
        "]\n"
    )
    with pytest.raises(InventoryError) as no:
        inventory.load(path)
    lines = str(no.value).split("\n")
    assert [line.partition(";")[0].partition(" Allowed")[0] for line in lines] == [
        "site.py:1: monitoring must be a mapping",
        "site.py:6: unknown key 'source'. Did you mean 'sources'?",
        "site.py:10: fabric_address is not an address",
        "site.py:11: unknown key 'prot' in models.q. Did you mean 'port'?",
        "site.py:11: models.r.recipe names an unknown recipe",
        "site.py:13: clusters.piar must be a mapping",
        "site.py:13: boot names no model",
        "7 mistakes.",
    ]


TIMER = "/etc/systemd/system/report.timer"
TEXT = "[Timer]\nOnCalendar=daily\n[Install]\nWantedBy=timers.target\n"


def host_with_files(folder: Path, extra_files: dict[str, str]) -> HostPlan:
    (folder / "files").mkdir(exist_ok=True)
    (folder / "files/report.timer").write_text(TEXT)
    path = write_inventory(folder, {"spark-1": {**ANNA, "extra_files": extra_files}})
    [host] = inventory.load(path)
    return host


def test_a_timer_is_checked_written_recorded_and_started_at_boot(tmp_path: Path) -> None:
    host = host_with_files(tmp_path, {TIMER: "files/report.timer"})
    desired_state = DesiredState(host, pins_for(host))
    [file] = (file for file in desired_state.all_files if file.path == TIMER)
    assert (file.text, file.mode, file.check) == (TEXT, "0644", "unit")
    assert "report.timer" in desired_state.watch_units
    # The record is the proof that it is ours, for `diff`, a rollback and `remove`.
    assert TIMER in [file["path"] for file in desired_state.generation_document["files"]]


@pytest.mark.parametrize("install", ["", "[Install]\nWantedBy=multi-user.target\n"])
def test_a_service_runs_from_the_deploy_on_if_it_has_a_place_in_the_boot(tmp_path, install: str):
    (tmp_path / "mine").write_text(f"[Service]\nExecStart=/bin/sleep infinity\n{install}")
    # A program stays executable.
    (tmp_path / "report").write_text("#!/bin/sh\n")
    (tmp_path / "report").chmod(0o755)
    sources = {"/etc/systemd/system/mine.service": "mine", "/usr/local/bin/report": "report"}
    host = host_with_files(tmp_path, sources)
    assert ("mine.service" in DesiredState(host, pins_for(host)).watch_units) is bool(install)
    modes = [(file.mode, file.check) for file in host.extra_files]
    assert sorted(modes) == [("0644", "unit"), ("0755", None)]


@pytest.mark.parametrize("source", ["files/none.timer", "picture"])
def test_what_cannot_be_written_is_refused_before_anything_is_touched(source, tmp_path, capsys):
    (tmp_path / "picture").write_bytes(b"\x89PNG")
    with pytest.raises(SystemExit):
        host_with_files(tmp_path, {TIMER: source})
    message = " ".join(capsys.readouterr().err.split())
    assert message.startswith(f"sparks.py:2: extra_files: {TIMER} cannot be written")
