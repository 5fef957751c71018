"""`lockstep deploy` over the real deploy: as few lines as there is to say, and nothing untold."""

from __future__ import annotations

import copy
import re
import subprocess

from a_site import Site
from an_older_site import FILE, OLD, UNIT, changed, outdate
from fake_spark import HOSTS

ONE, TWO = HOSTS


def lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What was printed, without those lines that say each minute that something goes on."""
    return [line for line in done.stdout.splitlines() if "  … " not in line]


def test_a_deploy_that_changes_nothing_is_six_lines_at_most(converged: Site) -> None:
    done = converged.quiet_deploy(real=True)
    assert done.returncode == 0, done.stdout + done.stderr
    heading, what, *rest = lines(done)
    assert heading.startswith("Lockstep · inventories/site.py · all lines: state/lockstep/deploys/")
    assert re.match(r"Nothing to change, \d+:\d\d\. ", what)
    assert f"{ONE}, {TWO} serve: qwen, mistral, mistral-vllm. Nothing is hot." in what
    assert rest[0] == "Start one:  lockstep switch qwen -i inventories/site.py"
    assert len(rest) <= 4
    assert changed(converged) == []
    log = max((converged.repository / "state/lockstep/deploys").glob("*.log"))
    assert "--> Loading config..." in log.read_text(encoding="utf-8")
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_first_deploy_is_a_line_a_stage(wiped: Site) -> None:
    done = wiped.quiet_deploy()
    assert done.returncode == 0, done.stdout + done.stderr
    shown = lines(done)
    assert len(shown) < 30
    stages = [line.split()[0] for line in shown[1:] if f"{ONE}, {TWO}: " in line]
    assert stages[:4] == ["packages", "engine", "images", "weights"]


def test_a_hot_model_is_not_interrupted_unasked(converged: Site) -> None:
    outdate(converged, ONE)
    refused = converged.quiet_deploy()
    assert refused.returncode == 1
    assert lines(refused)[1:] == [
        "This deploy interrupts:",
        f"  {ONE}: {UNIT} is hot: it restarts; 2 requests under way",
        "Nobody can be asked here: --yes goes on.",
        "Nobody agreed to it. Nothing was touched on any host.",
    ]
    assert changed(converged) == []
    done = converged.quiet_deploy("--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    unit = converged.document["hosts"][ONE]["units"][UNIT]
    assert unit["generation"] == unit["wanted"]


def test_a_dry_run_names_what_would_change_and_changes_nothing(converged: Site) -> None:
    outdate(converged, ONE)
    done = converged.quiet_deploy("--dry", "--diff")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"[{ONE}] will modify /etc/systemd/system/{UNIT}" in done.stdout
    assert f"would  {ONE}: Restart hot models, one host at a time" in done.stdout
    assert f"  {ONE}: {UNIT} is hot: it restarts; 2 requests under way" in done.stdout
    assert changed(converged) == []


def test_a_host_that_fails_is_named_with_step_and_reason(converged: Site) -> None:
    outdate(converged, TWO, hot=False)
    step = f"write /etc/systemd/system/{UNIT}"
    done = converged.quiet_deploy(fails={TWO: {step: "disk is full"}})
    assert done.returncode == 1
    shown = done.stdout.splitlines()
    assert f"FAILED  {TWO}: Services | Write launchers and units" in shown
    assert "        disk is full" in shown
    assert "Traceback" not in done.stdout + done.stderr


def test_keep_hot_leaves_a_host_as_it_is_where_a_model_would_restart_and_does_the_others(
    converged: Site,
) -> None:
    outdate(converged, ONE)
    outdate(converged, TWO, hot=False)
    before = copy.deepcopy(converged.document["hosts"][ONE])
    done = converged.quiet_deploy("--keep-hot")
    assert done.returncode == 1
    assert f"{ONE}: {UNIT} stays hot; this host is held back" in done.stdout
    assert f"Held back: {ONE}, where vllm-qwen36 runs on" in done.stdout
    assert "FAILED" not in done.stdout
    assert "A deploy without --keep-hot gives" in done.stdout
    assert "Run the same command again" not in done.stdout
    assert converged.document["said"].pop(ONE)[-1] == (
        "ended held back before Services | Restart hot models, one host at a time, "
        "where vllm-qwen36 runs on"
    )
    assert converged.changes(ONE) == []
    assert converged.document["hosts"][ONE] == before
    assert f"write {FILE}" in converged.changes(TWO)
    assert converged.quiet_deploy("--yes").returncode == 0
    assert converged.document["hosts"][ONE]["units"][UNIT]["generation"] != OLD


def test_keep_hot_holds_back_a_host_whose_model_a_restart_of_docker_would_end(
    converged: Site,
) -> None:
    units = converged.document["hosts"][ONE]["units"]
    hot = {"ActiveState": "active", "SubState": "running"}
    units[UNIT] |= {**hot, "generation": units[UNIT]["wanted"]}
    units["docker.service"] = {**units[UNIT], **hot, "outdated": True, "wanted": ""}
    done = converged.quiet_deploy("--keep-hot")
    assert done.returncode == 1
    assert converged.changes(ONE) == []
    assert f"Held back: {ONE}, where {UNIT} runs on" in done.stdout
