"""`lockstep deploy` over the real deploy: few lines, and nothing of importance missing."""

import copy
import re

from a_site import Site
from an_older_site import FILE, UNIT, outdate, plan_restart_of_docker, site_changes
from fake_spark import HOSTS

ONE, TWO = HOSTS


def test_a_deploy_that_changes_nothing_is_six_lines_at_most(site: Site) -> None:
    result = site.quiet_deploy()
    heading, summary, *hints = result.stdout.splitlines()
    assert heading.startswith("Lockstep · inventories/site.py · all lines: state/lockstep/deploys/")
    assert re.match(r"Nothing to change, \d+:\d\d\. ", summary)
    assert f"{ONE}, {TWO} serve: qwen, mistral, mistral-vllm. Nothing is hot." in summary
    assert hints[0] == "Start one:  lockstep switch qwen -i inventories/site.py"
    assert len(hints) <= 4
    assert site_changes(site) == []
    log = max((site.repository / "state/lockstep/deploys").glob("*.log"))
    assert "--> Loading config..." in log.read_text(encoding="utf-8")
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_hot_model_is_not_interrupted_by_a_dry_run_nor_unasked(site: Site) -> None:
    outdate(site, ONE)
    interruption = f"  {ONE}: {UNIT} is hot: it restarts; 2 requests under way"
    result = site.quiet_deploy("--dry", "--diff")
    assert f"[{ONE}] will modify /etc/systemd/system/{UNIT}" in result.stdout
    assert f"would  {ONE}: Restart hot models, one host at a time" in result.stdout
    assert interruption in result.stdout and site_changes(site) == []
    result = site.quiet_deploy(exits=1)
    assert interruption in result.stdout and "Nobody can be asked here: --yes" in result.stdout
    assert site_changes(site) == []
    site.quiet_deploy("--yes")
    unit = site.document["hosts"][ONE]["units"][UNIT]
    assert unit["restart_key"] == unit["wanted"]


def test_keep_hot_leaves_a_host_as_it_is_where_a_model_would_restart_and_does_the_others(site):
    outdate(site, ONE)
    outdate(site, TWO, hot=False)
    earlier_host = copy.deepcopy(site.document["hosts"][ONE])
    result = site.quiet_deploy("--keep-hot", exits=1)
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


def test_keep_hot_holds_back_a_host_whose_model_a_restart_of_docker_would_end(site: Site) -> None:
    plan_restart_of_docker(site, ONE)
    site.quiet_deploy("--keep-hot", exits=1)
    assert site.changes(ONE) == []
    assert f"Held back: {ONE}, where {UNIT} runs on" in site.output
