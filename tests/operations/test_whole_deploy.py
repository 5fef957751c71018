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


def test_a_wiped_host_gets_everything_in_order(first: Any) -> None:
    golden = Path(__file__).parent / "golden/wiped_host.txt"
    for host in HOSTS:
        text = "".join(f"{line}\n" for line in first.site.changes(host))
        text = re.sub(r"(sharing close) [0-9a-f]{16}$", r"\1 RUN", text, flags=re.MULTILINE)
        if os.environ.get("UPDATE_GOLDEN"):
            golden.write_text(text)
        assert text == golden.read_text()


def test_the_run_ends_with_what_runs_where(first: Any) -> None:
    lines = first.result.stdout.splitlines()
    assert [line for line in lines if line.startswith("@fake")] == list(HOSTS)
    assert lines.count(" open-webui        active, 127.0.0.1:8080") == 2
    assert lines.count(" models at boot    none") == 2
    assert lines[-1] == "Next: ssh @fake/spark1 /data/scripts/llm/switch.sh status"
    assert max(len(line) for line in lines) <= 80
    assert "Traceback" not in first.result.stderr


def test_the_lock_that_all_hosts_have_is_remembered_and_the_one_before(
    first: Any, repository: Path, whole: Any
) -> None:
    lock = repository / "site.lock.yaml"
    pins = lockfile.load(lock)
    assert lockfile.load(lockfile.deployed_path(lock)) == pins
    # Of a test that another process of tests had first.
    lockfile.previous_path(lock).unlink(missing_ok=True)
    newer = replace(
        pins, git={**pins.git, "https://example.com/more.git": GitPin("main", 40 * "d")}
    )
    lockfile.save(lock, newer)
    site = Site(repository, whole)
    try:
        # One host alone is not all of them, and a look is no deploy.
        for options in (("--limit", HOSTS[0]), ("--dry",)):
            assert site.deploy(*options).returncode == 0
            assert lockfile.load(lockfile.deployed_path(lock)) == pins
            assert not lockfile.previous_path(lock).exists()
        assert site.deploy().returncode == 0
        assert lockfile.load(lockfile.deployed_path(lock)) == newer
        assert lockfile.load(lockfile.previous_path(lock)) == pins
    finally:
        lockfile.save(lock, pins)
        site.deploy()


def test_with_json_standard_output_is_the_document_alone(converged_site: Site) -> None:
    result = converged_site.deploy("--json")
    assert json.loads(result.stdout)["plan"]
    assert "hot now" in result.stderr


def test_the_second_run_changes_nothing_and_asks_once(converged_site: Site, whole: Any) -> None:
    assert converged_site.deploy().returncode == 0
    for host in HOSTS:
        assert converged_site.changes(host) == []
        assert converged_site.commands(host) == ["? all"]
    assert converged_site.document["hosts"] == whole


@pytest.mark.parametrize("cut", [12, 58])
def test_a_run_that_is_cut_off_is_finished_by_the_next(
    wiped_site: Site, whole: Any, cut: int
) -> None:
    assert wiped_site.deploy(cut=cut).returncode == 137
    assert wiped_site.document["hosts"] != whole
    assert wiped_site.deploy().returncode == 0
    assert wiped_site.document["hosts"] == whole


def test_a_finding_on_one_host_stops_the_run_before_any_change_on_any(wiped_site: Site) -> None:
    result = wiped_site.deploy(fails={HOSTS[1]: {"facts": {"architecture": "x86_64"}}})
    assert result.returncode == 1
    assert wiped_site.commands(HOSTS[0]) == wiped_site.commands(HOSTS[1]) == ["? all"]
    assert "architecture: it is x86_64, expected aarch64" in result.stderr
    assert "nothing was touched on any host" in result.stderr
    assert "Traceback" not in result.stderr


def test_where_no_host_can_be_asked_the_run_ends_there_with_the_reasons(wiped_site: Site) -> None:
    result = wiped_site.deploy(fails={host: {"preflight": "python3: not found"} for host in HOSTS})
    assert result.returncode == 1
    assert "no host can be asked what it is; nothing was touched on any host" in result.stderr
    assert result.stderr.count("python3: not found") == 2
    assert "Traceback" not in result.stderr and "Beginning operation run" not in result.stderr


def test_a_container_that_the_inventory_takes_over_is_removed_before_ours_starts(
    wiped_site: Site,
) -> None:
    playbook = {"open-webui": {"id": "0", "ports": [8080]}}
    foreign = {"containers": playbook, "volumes": ["open-webui"]}
    fails = {HOSTS[0]: {"foreign": foreign}}
    result = wiped_site.deploy(fails=fails)
    assert result.returncode == 1
    assert result.stderr.count("not-ours") == 2
    assert wiped_site.commands(HOSTS[0]) == wiped_site.commands(HOSTS[1]) == ["? all"]
    adopt = {"adopt": ("container open-webui", "volume open-webui")}
    wiped_site.inventory = inventory(wiped_site.repository, "taking", adopt)
    second_result = wiped_site.deploy(fails=fails)
    assert second_result.returncode == 0
    changes = wiped_site.changes(HOSTS[0])
    removal = changes.index("timeout --verbose 300 /usr/bin/docker rm --force open-webui")
    assert removal < changes.index(f"job start-open-webui: {PROGRAM} start open-webui.service")
    assert not [line for line in wiped_site.changes(HOSTS[1]) if "docker rm" in line]
    # No administrator is made beside the accounts that are there.
    (secrets_line,) = (
        line for line in changes if "make-secrets" in line and "open-webui.env" in line
    )
    assert secrets_line.endswith("open-webui.env ''")
    assert "with the accounts of before" in " ".join(second_result.stdout.split())


def test_a_finding_of_preflight_that_the_inventory_waives_is_shown_and_stops_nothing(
    wiped_site: Site,
) -> None:
    wiped_site.inventory = inventory(wiped_site.repository, "waiving", {"waive": ("dgx-os",)}, {})
    bare = {"facts": {"dgx": {}}}
    result = wiped_site.deploy(fails={HOSTS[0]: bare})
    assert result.returncode == 0
    (line,) = (line for line in result.stderr.splitlines() if "dgx-os:" in line)
    assert line.split()[:4] == [HOSTS[0], "waived", "dgx-os:", "it"]
    # Only where it is waived.
    second_result = wiped_site.deploy(fails={HOSTS[0]: bare, HOSTS[1]: bare})
    assert second_result.returncode == 1
    lines = [line.split()[:2] for line in second_result.stderr.splitlines() if "dgx-os:" in line]
    assert lines == [[HOSTS[1], "error"], [HOSTS[0], "waived"]]


def test_a_host_that_cannot_be_asked_is_left_alone_and_named(wiped_site: Site) -> None:
    result = wiped_site.deploy(fails={HOSTS[1]: {"preflight": "python3: not found"}})
    assert result.returncode == 1
    assert wiped_site.commands(HOSTS[1]) == ["? all"]
    assert wiped_site.changes(HOSTS[0])[-2].startswith("job start-open-webui")
    assert wiped_site.changes(HOSTS[0])[-1] == "record"
    assert f"FAILED  {HOSTS[1]}: Preflight | Ask the host what it is\n" in result.stdout
    assert "Traceback" not in result.stderr


def test_one_broken_host_neither_stops_nor_taints_the_other(wiped_site: Site, whole: Any) -> None:
    message = "error: no space left on device"
    result = wiped_site.deploy(fails={HOSTS[0]: {"job engine-vllm": message}})
    assert result.returncode == 1
    assert wiped_site.changes(HOSTS[0])[-1].startswith("job engine-vllm")
    assert wiped_site.changes(HOSTS[1])[-3].startswith("job start-open-webui")
    # Told to all: the broken host gives nothing any more either.
    assert "sharing close" in wiped_site.changes(HOSTS[1])[-2]
    assert wiped_site.changes(HOSTS[1])[-1] == "record"
    assert result.stdout.endswith(
        f"FAILED  {HOSTS[0]}: vLLM | Build the engine's environment: vLLM\n"
        f"        {message}\n"
        f"Done on: {HOSTS[1]}\n"
        f"The hosts differ now. The new generation is on: {HOSTS[1]}. It is not, or not\n"
        f"  whole, on: {HOSTS[0]}.\n"
        "To make them equal, go on where this run ended:\n"
        "  pyinfra inventories/site.py deploy.py\n"
    )
    assert "Traceback" not in result.stderr
    assert wiped_site.deploy().returncode == 0
    assert wiped_site.document["hosts"] == whole


def test_what_a_killed_deploy_left_open_is_ended(wiped_site: Site) -> None:
    wiped_site.inventory = inventory(wiped_site.repository, "alone", {}, {"copying": False})
    open_leases = {"facts": {"leases": ["0123456789abcdef"]}}
    # One host of two may copy: nobody to copy from.
    assert wiped_site.deploy(fails={HOSTS[0]: open_leases, HOSTS[1]: open_leases}).returncode == 0
    close_line = "/usr/bin/python3 /usr/local/lib/lockstep sharing close 0123456789abcdef"
    host_changes = [wiped_site.changes(host) for host in HOSTS]
    assert [[line for line in lines if " sharing " in line] for lines in host_changes] == [
        [close_line],
        [close_line],
    ]
    # A job that the killed deploy started may be copying still, where copying is allowed.
    jobs = [next(line for line in lines if "job engine" in line) for lines in host_changes]
    assert host_changes[0].index(close_line) > host_changes[0].index(jobs[0])
    assert host_changes[1].index(close_line) < host_changes[1].index(jobs[1])


def test_one_task_runs_alone(converged_site: Site) -> None:
    units = converged_site.document["hosts"][HOSTS[0]]["units"]
    units["open-webui.service"]["ActiveState"] = "failed"
    result = converged_site.deploy(task="lockstep.tasks.webui.webui")
    assert result.returncode == 0, result.stderr
    assert converged_site.changes(HOSTS[0]) == [
        f"job start-open-webui: {PROGRAM} start open-webui.service"
    ]


def test_each_host_is_told_what_is_changed_there_and_how_the_deploy_ended(
    wiped_site: Site, whole: Any
) -> None:
    assert wiped_site.deploy(fails={HOSTS[1]: {"sysctl": "no"}}).returncode == 1
    good, bad = (wiped_site.document["said"][host] for host in HOSTS)
    assert good[0] == "changed Base | Note what was here before"
    assert good[-1] == "ended done" and len(good) == len(set(good)) > 10
    assert bad[-1] == "ended failed at Base | Write folders, programs and settings"
    site = Site(wiped_site.repository, whole)
    assert site.deploy().returncode == 0
    assert site.document["said"] == {host: ["ended done"] for host in HOSTS}
    assert site.deploy("--dry").returncode == 0
    assert site.document["said"] == {host: [] for host in HOSTS}


def test_what_a_host_said_beside_another_deploy_is_asked_again(converged_site: Site) -> None:
    site = converged_site
    result = site.deploy(fails={HOSTS[0]: {"waited": {"packages": [], "units": {}}}})
    assert result.returncode == 0, result.stderr
    assert site.changes(HOSTS[0]) == []
    assert [site.commands(host).count("? all") for host in HOSTS] == [2, 1]


def test_a_host_that_another_deploy_changes_ends_this_one_before_anything_is_touched(
    wiped_site: Site,
) -> None:
    owner = "anna from laptop: deploy of spark, since 12 s"
    result = wiped_site.deploy(fails={HOSTS[1]: {"other": owner}})
    assert result.returncode == 1
    assert wiped_site.changes(HOSTS[0]) == wiped_site.changes(HOSTS[1]) == []
    output = " ".join(result.stderr.split())
    assert f"another deploy is under way: {HOSTS[1]}: {owner} Nothing was touched" in output
    assert "LOCKSTEP_WAIT=600" in output and "Traceback" not in output
    # Who only looks is in nobody's way.
    assert wiped_site.deploy("--dry", fails={HOSTS[1]: {"other": owner}}).returncode == 0


NOT_TAKEN = {"deploy_records.other_and_cut_off_deploy": "the lock of this deploy was not taken"}


def test_a_host_whose_lock_nobody_took_is_named_as_failed(converged_site: Site) -> None:
    result = converged_site.deploy(fails={HOSTS[1]: {"faults": NOT_TAKEN}})
    assert result.returncode == 1
    output = " ".join(result.stdout.split())
    assert f"FAILED {HOSTS[1]}: Preflight | Ask the host what it is" in output
    assert f"FAILED {HOSTS[0]}" not in result.stdout and "Traceback" not in result.stderr
