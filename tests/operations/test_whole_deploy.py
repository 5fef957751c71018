"""The whole deploy.py through the real pyinfra command, on two Sparks in memory."""

import json
import os
import re
from pathlib import Path

import pytest
from a_site import Site, inventory
from fake_spark import HOSTS

from lockstep.lock import lockfile

pytestmark = pytest.mark.slow

ONE, TWO = HOSTS
PROGRAM = "/usr/bin/python3 /usr/local/lib/lockstep webui"


def test_a_wiped_host_gets_everything_in_order(first: Site) -> None:
    golden = Path(__file__).parent / "golden/wiped_host.txt"
    for host in HOSTS:
        text = "".join(f"{line}\n" for line in first.changes(host))
        text = re.sub(r"(sharing close) [0-9a-f]{16}$", r"\1 RUN", text, flags=re.MULTILINE)
        if os.environ.get("UPDATE_GOLDEN"):
            golden.write_text(text)
        assert text == golden.read_text()
    lines = first.result.stdout.splitlines()
    assert lines.count(" open-webui        active, 127.0.0.1:8080") == 2
    assert lines[-1] == "Next: ssh @fake/spark1 /data/scripts/llm/switch.sh status"


def test_the_lock_that_all_hosts_have_is_remembered(repository: Path, site: Site) -> None:
    lock = repository / "own.lock.yaml"
    lock.write_text((repository / "site.lock.yaml").read_text())
    site.inventory = inventory(repository, "locked", {"lock": lock.name})
    # One host alone is not all of them, and a look is no deploy.
    for options in (("--limit", ONE), ("--dry",)):
        site.deploy(*options)
        assert not lockfile.deployed_path(lock).exists()
    site.deploy()
    assert lockfile.load(lockfile.deployed_path(lock)) == lockfile.load(lock)


def test_with_json_standard_output_is_the_document_alone(site: Site) -> None:
    result = site.deploy("--json")
    assert json.loads(result.stdout)["plan"]
    assert "hot now" in result.stderr


def test_a_run_that_is_cut_off_is_finished_by_the_next(wiped_site, whole) -> None:
    wiped_site.deploy(cut=58, exits=137)
    assert wiped_site.document["hosts"] != whole
    wiped_site.deploy()
    assert wiped_site.document["hosts"] == whole


UNASKABLE = {"preflight": "python3: not found"}
OTHER_DEPLOY = "anna from laptop: deploy of spark, since 12 s"


@pytest.mark.parametrize(
    ("fails", "messages"),
    [
        (
            {TWO: {"facts": {"architecture": "x86_64"}}},
            ("architecture: it is x86_64, expected aarch64", "nothing was touched on any host"),
        ),
        (
            dict.fromkeys(HOSTS, UNASKABLE),
            ("no host can be asked what it is; nothing was touched on any host",),
        ),
        (
            {TWO: {"other": OTHER_DEPLOY}},
            (f"under way: {TWO}: {OTHER_DEPLOY} Nothing was touched", "LOCKSTEP_WAIT=600"),
        ),
    ],
    ids=["a finding", "no host answers", "another deploy"],
)
def test_a_run_that_may_not_begin_touches_no_host(wiped_site: Site, fails, messages) -> None:
    wiped_site.deploy(fails=fails, exits=1)
    assert [wiped_site.changes(host) for host in HOSTS] == [[], []]
    assert all(message in wiped_site.output for message in messages)
    assert "Beginning operation run" not in wiped_site.output


def test_who_only_looks_is_in_no_deploys_way(site: Site) -> None:
    site.deploy("--dry", fails={TWO: {"other": OTHER_DEPLOY}})


def test_a_container_that_the_inventory_takes_over_is_removed_before_ours_starts(wiped_site: Site):
    playbook = {"open-webui": {"id": "0", "ports": [8080]}}
    adopt = {"adopt": ("container open-webui", "volume open-webui")}
    wiped_site.inventory = inventory(wiped_site.repository, "taking", adopt)
    wiped_site.deploy(fails={ONE: {"foreign": {"containers": playbook, "volumes": ["open-webui"]}}})
    changes = wiped_site.changes(ONE)
    removal = changes.index("timeout --verbose 300 /usr/bin/docker rm --force open-webui")
    assert removal < changes.index(f"job start-open-webui: {PROGRAM} start open-webui.service")
    assert not [line for line in wiped_site.changes(TWO) if "docker rm" in line]
    # No administrator is made beside the accounts that are there.
    (secrets_line,) = (line for line in changes if re.match(".*make-secrets.*open-webui.env", line))
    assert secrets_line.endswith("open-webui.env ''")
    assert "with the accounts of before" in wiped_site.output


def test_a_finding_of_preflight_is_waived_on_the_hosts_whose_inventory_does_it(site: Site) -> None:
    site.inventory = inventory(site.repository, "waiving", {"waive": ("dgx-os",)}, {})
    bare = {"facts": {"dgx": {}}}
    for hosts, exits, rows in (
        ([ONE], 0, [[ONE, "waived"]]),
        (HOSTS, 1, [[TWO, "error"], [ONE, "waived"]]),
    ):
        result = site.deploy(fails=dict.fromkeys(hosts, bare), exits=exits)
        lines = [line.split()[:2] for line in result.stderr.splitlines() if "dgx-os:" in line]
        assert lines == rows


NOT_TAKEN = {"deploy_records.other_and_cut_off_deploy": "the lock of this deploy was not taken"}


@pytest.mark.parametrize("fault", [UNASKABLE, {"faults": NOT_TAKEN}], ids=["unasked", "no lock"])
def test_a_host_that_cannot_be_asked_or_locked_is_left_alone_and_named(site: Site, fault) -> None:
    for host in HOSTS:
        site.document["hosts"][host]["packages"].clear()
    site.deploy(fails={TWO: fault}, exits=1)
    assert site.changes(TWO) == [] != site.changes(ONE)
    assert f"FAILED {TWO}: Preflight | Ask the host what it is" in site.output
    assert f"FAILED {ONE}" not in site.output


def test_one_broken_host_neither_stops_nor_taints_the_other(wiped_site, whole) -> None:
    wiped_site.deploy(fails={ONE: {"job engine-vllm": "error: no space left on device"}}, exits=1)
    assert wiped_site.changes(ONE)[-1].startswith("job engine-vllm")
    start, close, record = wiped_site.changes(TWO)[-3:]
    assert start.startswith("job start-open-webui") and record == "record"
    # Told to all: the broken host gives nothing any more either.
    assert "sharing close" in close
    # Each host hears what is changed there, and how the deploy ended.
    bad, good = (wiped_site.document["said"][host] for host in HOSTS)
    assert good[0] == "changed Base | Note what was here before"
    assert good[-1] == "ended done" and len(good) == len(set(good)) > 10
    assert bad[-1] == "ended failed at vLLM | Build the engine's environment: vLLM"
    wiped_site.deploy()
    assert wiped_site.document["hosts"] == whole


def test_what_a_killed_deploy_left_open_is_ended(wiped_site: Site) -> None:
    wiped_site.inventory = inventory(wiped_site.repository, "alone", {}, {"copying": False})
    # One host of two may copy: nobody to copy from.
    open_leases = {"facts": {"leases": ["0123456789abcdef"]}}
    wiped_site.deploy(fails={ONE: open_leases, TWO: open_leases})
    close = "/usr/bin/python3 /usr/local/lib/lockstep sharing close 0123456789abcdef"
    places = []
    for host in HOSTS:
        changes = wiped_site.changes(host)
        assert [line for line in changes if " sharing " in line] == [close]
        job = next(line for line in changes if "job engine" in line)
        places.append(changes.index(close) - changes.index(job))
    # A job that the killed deploy started may be copying still, where copying is allowed.
    assert places[0] > 0 > places[1]


def test_one_task_runs_alone(site: Site) -> None:
    units = site.document["hosts"][ONE]["units"]
    units["open-webui.service"]["ActiveState"] = "failed"
    site.deploy(task="lockstep.tasks.webui.webui")
    start = f"job start-open-webui: {PROGRAM} start open-webui.service"
    assert site.changes(ONE) == [start]


def test_what_a_host_said_beside_another_deploy_is_asked_again(site: Site) -> None:
    site.deploy(fails={ONE: {"waited": {"packages": [], "units": {}}}})
    assert site.changes(ONE) == []
    assert [site.commands(host).count("? all") for host in HOSTS] == [2, 1]
