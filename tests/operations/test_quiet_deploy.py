"""`lockstep deploy` over the real deploy: few lines, and nothing of importance missing."""

from __future__ import annotations

import copy
import re
import subprocess

from a_site import Site
from an_older_site import FILE, OLD, UNIT, outdate, plan_restart_of_docker, site_changes
from fake_spark import HOSTS

ONE, TWO = HOSTS


def lines(result: subprocess.CompletedProcess[str]) -> list[str]:
    """The printed lines, without those that say each minute that a step goes on."""
    return [line for line in result.stdout.splitlines() if "  … " not in line]


def test_a_deploy_that_changes_nothing_is_six_lines_at_most(site: Site) -> None:
    result = site.quiet_deploy(real=True)
    heading, summary, *hints = lines(result)
    assert heading.startswith("Lockstep · inventories/site.py · all lines: state/lockstep/deploys/")
    assert re.match(r"Nothing to change, \d+:\d\d\. ", summary)
    assert f"{ONE}, {TWO} serve: qwen, mistral, mistral-vllm. Nothing is hot." in summary
    assert hints[0] == "Start one:  lockstep switch qwen -i inventories/site.py"
    assert len(hints) <= 4
    assert site_changes(site) == []
    log = max((site.repository / "state/lockstep/deploys").glob("*.log"))
    assert "--> Loading config..." in log.read_text(encoding="utf-8")
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_first_deploy_is_a_line_a_stage(wiped_site: Site) -> None:
    result = wiped_site.quiet_deploy()
    printed_lines = lines(result)
    assert len(printed_lines) < 30
    stages = [line.split()[0] for line in printed_lines[1:] if f"{ONE}, {TWO}: " in line]
    assert stages[:4] == ["packages", "engine", "images", "weights"]


def test_a_hot_model_is_not_interrupted_by_a_dry_run_nor_unasked(site: Site) -> None:
    outdate(site, ONE)
    interruption = f"  {ONE}: {UNIT} is hot: it restarts; 2 requests under way"
    result = site.quiet_deploy("--dry", "--diff")
    assert f"[{ONE}] will modify /etc/systemd/system/{UNIT}" in result.stdout
    assert f"would  {ONE}: Restart hot models, one host at a time" in result.stdout
    assert interruption in result.stdout and site_changes(site) == []
    result = site.quiet_deploy(exits=1)
    assert lines(result)[1:] == [
        "This deploy interrupts:",
        interruption,
        "Nobody can be asked here: --yes goes on.",
        "Nobody agreed to it. Nothing was touched on any host.",
    ]
    assert site_changes(site) == []
    site.quiet_deploy("--yes")
    unit = site.document["hosts"][ONE]["units"][UNIT]
    assert unit["restart_key"] == unit["wanted"]


def test_a_host_that_fails_is_named_with_step_and_reason(site: Site) -> None:
    outdate(site, TWO, hot=False)
    step = f"write /etc/systemd/system/{UNIT}"
    result = site.quiet_deploy(fails={TWO: {step: "disk is full"}}, exits=1)
    printed_lines = result.stdout.splitlines()
    assert f"FAILED  {TWO}: Services | Write launchers and units" in printed_lines
    assert "        disk is full" in printed_lines


def test_keep_hot_leaves_a_host_as_it_is_where_a_model_would_restart_and_does_the_others(
    site: Site,
) -> None:
    outdate(site, ONE)
    outdate(site, TWO, hot=False)
    earlier_host = copy.deepcopy(site.document["hosts"][ONE])
    result = site.quiet_deploy("--keep-hot", exits=1)
    assert f"{ONE}: {UNIT} stays hot; this host is held back" in result.stdout
    assert f"Held back: {ONE}, where vllm-qwen36 runs on" in result.stdout
    assert "FAILED" not in result.stdout
    assert "A deploy without --keep-hot gives" in result.stdout
    assert "Run the same command again" not in result.stdout
    assert site.document["said"].pop(ONE)[-1] == (
        "ended held back before Services | Restart hot models, one host at a time, "
        "where vllm-qwen36 runs on"
    )
    assert site.changes(ONE) == []
    assert site.document["hosts"][ONE] == earlier_host
    assert f"write {FILE}" in site.changes(TWO)
    site.quiet_deploy("--yes")
    assert site.document["hosts"][ONE]["units"][UNIT]["restart_key"] != OLD


def test_keep_hot_holds_back_a_host_whose_model_a_restart_of_docker_would_end(site: Site) -> None:
    plan_restart_of_docker(site, ONE)
    site.quiet_deploy("--keep-hot", exits=1)
    assert site.changes(ONE) == []
    assert f"Held back: {ONE}, where {UNIT} runs on" in site.output
