"""The whole deploy.py through the real pyinfra command, on two Sparks in memory."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from a_site import Site, inventory
from fake_spark import HOSTS

from lockstep.lock import lockfile
from lockstep.lock.pins import GitPin

pytestmark = pytest.mark.slow

PROGRAM = "/usr/bin/python3 /usr/local/lib/lockstep webui"


def test_a_wiped_host_gets_everything_in_order(first: Site) -> None:
    golden = Path(__file__).parent / "golden/wiped_host.txt"
    for host in HOSTS:
        text = "".join(f"{line}\n" for line in first.changes(host))
        text = re.sub(r"(sharing close) [0-9a-f]{16}$", r"\1 RUN", text, flags=re.MULTILINE)
        if os.environ.get("UPDATE_GOLDEN"):
            golden.write_text(text)
        assert text == golden.read_text()


def test_the_run_ends_with_what_runs_where(first: Site) -> None:
    lines = first.result.stdout.splitlines()
    assert [line for line in lines if line.startswith("@fake")] == list(HOSTS)
    assert lines.count(" open-webui        active, 127.0.0.1:8080") == 2
    assert lines.count(" models at boot    none") == 2
    assert lines[-1] == "Next: ssh @fake/spark1 /data/scripts/llm/switch.sh status"
    assert max(len(line) for line in lines) <= 80


def test_the_lock_that_all_hosts_have_is_remembered_and_the_one_before(
    repository: Path, site: Site
) -> None:
    lock = repository / "site.lock.yaml"
    pins = lockfile.load(lock)
    assert lockfile.load(lockfile.deployed_path(lock)) == pins
    # Of a test that another process of tests had first.
    lockfile.previous_path(lock).unlink(missing_ok=True)
    more_pins = {**pins.git, "https://example.com/more.git": GitPin("main", 40 * "d")}
    newer = replace(pins, git=more_pins)
    lockfile.save(lock, newer)
    try:
        # One host alone is not all of them, and a look is no deploy.
        for options in (("--limit", HOSTS[0]), ("--dry",)):
            site.deploy(*options)
            assert lockfile.load(lockfile.deployed_path(lock)) == pins
            assert not lockfile.previous_path(lock).exists()
        site.deploy()
        assert lockfile.load(lockfile.deployed_path(lock)) == newer
        assert lockfile.load(lockfile.previous_path(lock)) == pins
    finally:
        lockfile.save(lock, pins)
        site.deploy()


def test_with_json_standard_output_is_the_document_alone(site: Site) -> None:
    result = site.deploy("--json")
    assert json.loads(result.stdout)["plan"]
    assert "hot now" in result.stderr


@pytest.mark.parametrize("cut", [12, 58])
def test_a_run_that_is_cut_off_is_finished_by_the_next(
    wiped_site: Site, whole: Any, cut: int
) -> None:
    wiped_site.deploy(cut=cut, exits=137)
    assert wiped_site.document["hosts"] != whole
    wiped_site.deploy()
    assert wiped_site.document["hosts"] == whole


UNASKABLE = {"preflight": "python3: not found"}
OTHER_DEPLOY = "anna from laptop: deploy of spark, since 12 s"


@pytest.mark.parametrize(
    ("fails", "messages"),
    [
        (
            {HOSTS[1]: {"facts": {"architecture": "x86_64"}}},
            ("architecture: it is x86_64, expected aarch64", "nothing was touched on any host"),
        ),
        (
            dict.fromkeys(HOSTS, UNASKABLE),
            ("no host can be asked what it is; nothing was touched on any host",),
        ),
        (
            {HOSTS[1]: {"other": OTHER_DEPLOY}},
            (
                f"another deploy is under way: {HOSTS[1]}: {OTHER_DEPLOY} Nothing was touched",
                "LOCKSTEP_WAIT=600",
            ),
        ),
    ],
    ids=["a finding", "no host answers", "another deploy"],
)
def test_a_run_that_may_not_begin_touches_no_host(
    wiped_site: Site, fails: Any, messages: tuple[str, ...]
) -> None:
    wiped_site.deploy(fails=fails, exits=1)
    assert [wiped_site.changes(host) for host in HOSTS] == [[], []]
    assert all(message in wiped_site.output for message in messages)
    assert wiped_site.output.count("python3: not found") == (2 if len(fails) == 2 else 0)
    assert "Beginning operation run" not in wiped_site.output
    # Who only looks is in nobody's way.
    if "other" in fails.get(HOSTS[1], {}):
        wiped_site.deploy("--dry", fails=fails)


def test_a_container_that_the_inventory_takes_over_is_removed_before_ours_starts(
    wiped_site: Site,
) -> None:
    playbook = {"open-webui": {"id": "0", "ports": [8080]}}
    fails = {HOSTS[0]: {"foreign": {"containers": playbook, "volumes": ["open-webui"]}}}
    wiped_site.deploy(fails=fails, exits=1)
    assert wiped_site.output.count("not-ours") == 2
    assert [wiped_site.commands(host) for host in HOSTS] == [["? all"], ["? all"]]
    adopt = {"adopt": ("container open-webui", "volume open-webui")}
    wiped_site.inventory = inventory(wiped_site.repository, "taking", adopt)
    wiped_site.deploy(fails=fails)
    changes = wiped_site.changes(HOSTS[0])
    removal = changes.index("timeout --verbose 300 /usr/bin/docker rm --force open-webui")
    assert removal < changes.index(f"job start-open-webui: {PROGRAM} start open-webui.service")
    assert not [line for line in wiped_site.changes(HOSTS[1]) if "docker rm" in line]
    # No administrator is made beside the accounts that are there.
    (secrets_line,) = (line for line in changes if re.match(".*make-secrets.*open-webui.env", line))
    assert secrets_line.endswith("open-webui.env ''")
    assert "with the accounts of before" in wiped_site.output


def test_a_finding_of_preflight_that_the_inventory_waives_is_shown_and_stops_nothing(
    wiped_site: Site,
) -> None:
    wiped_site.inventory = inventory(wiped_site.repository, "waiving", {"waive": ("dgx-os",)}, {})
    bare = {"facts": {"dgx": {}}}

    def shown_findings(*hosts: str, exits: int) -> list[list[str]]:
        result = wiped_site.deploy(fails=dict.fromkeys(hosts, bare), exits=exits)
        return [line.split()[:2] for line in result.stderr.splitlines() if "dgx-os:" in line]

    assert shown_findings(HOSTS[0], exits=0) == [[HOSTS[0], "waived"]]
    # Only where it is waived.
    assert shown_findings(*HOSTS, exits=1) == [[HOSTS[1], "error"], [HOSTS[0], "waived"]]


NOT_TAKEN = {"deploy_records.other_and_cut_off_deploy": "the lock of this deploy was not taken"}


@pytest.mark.parametrize("fault", [UNASKABLE, {"faults": NOT_TAKEN}], ids=["unasked", "no lock"])
def test_a_host_that_cannot_be_asked_or_locked_is_left_alone_and_named(
    wiped_site: Site, fault: Any
) -> None:
    wiped_site.deploy(fails={HOSTS[1]: fault}, exits=1)
    assert wiped_site.changes(HOSTS[1]) == []
    assert wiped_site.changes(HOSTS[0])[-2].startswith("job start-open-webui")
    assert wiped_site.changes(HOSTS[0])[-1] == "record"
    assert f"FAILED {HOSTS[1]}: Preflight | Ask the host what it is" in wiped_site.output
    assert f"FAILED {HOSTS[0]}" not in wiped_site.output


def test_one_broken_host_neither_stops_nor_taints_the_other(wiped_site: Site, whole: Any) -> None:
    message = "error: no space left on device"
    result = wiped_site.deploy(fails={HOSTS[0]: {"job engine-vllm": message}}, exits=1)
    assert wiped_site.changes(HOSTS[0])[-1].startswith("job engine-vllm")
    start, close, record = wiped_site.changes(HOSTS[1])[-3:]
    assert start.startswith("job start-open-webui") and record == "record"
    # Told to all: the broken host gives nothing any more either.
    assert "sharing close" in close
    assert result.stdout.endswith(
        f"FAILED  {HOSTS[0]}: vLLM | Build the engine's environment: vLLM\n"
        f"        {message}\n"
        f"Done on: {HOSTS[1]}\n"
        f"The hosts differ now. The new generation is on: {HOSTS[1]}. It is not, or not\n"
        f"  whole, on: {HOSTS[0]}.\n"
        "To make them equal, go on where this run ended:\n"
        "  pyinfra inventories/site.py deploy.py\n"
    )
    wiped_site.deploy()
    assert wiped_site.document["hosts"] == whole


def test_what_a_killed_deploy_left_open_is_ended(wiped_site: Site) -> None:
    wiped_site.inventory = inventory(wiped_site.repository, "alone", {}, {"copying": False})
    # One host of two may copy: nobody to copy from.
    open_leases = {"facts": {"leases": ["0123456789abcdef"]}}
    wiped_site.deploy(fails={HOSTS[0]: open_leases, HOSTS[1]: open_leases})
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
    units = site.document["hosts"][HOSTS[0]]["units"]
    units["open-webui.service"]["ActiveState"] = "failed"
    site.deploy(task="lockstep.tasks.webui.webui")
    start = f"job start-open-webui: {PROGRAM} start open-webui.service"
    assert site.changes(HOSTS[0]) == [start]


def test_each_host_is_told_what_is_changed_there_and_how_the_deploy_ended(
    wiped_site: Site, site: Site
) -> None:
    wiped_site.deploy(fails={HOSTS[1]: {"sysctl": "no"}}, exits=1)
    good, bad = (wiped_site.document["said"][host] for host in HOSTS)
    assert good[0] == "changed Base | Note what was here before"
    assert good[-1] == "ended done" and len(good) == len(set(good)) > 10
    assert bad[-1] == "ended failed at Base | Write folders, programs and settings"
    for options, said_text in ((("--dry",), []), ((), ["ended done"])):
        site.deploy(*options)
        assert site.document["said"] == dict.fromkeys(HOSTS, said_text)


def test_what_a_host_said_beside_another_deploy_is_asked_again(site: Site) -> None:
    site.deploy(fails={HOSTS[0]: {"waited": {"packages": [], "units": {}}}})
    assert site.changes(HOSTS[0]) == []
    assert [site.commands(host).count("? all") for host in HOSTS] == [2, 1]
