"""The report on a host before its first deploy: ssh, sudo, and preflight's own judgement."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from a_spark import GIB, healthy, spark
from over_ssh import environment

from lockstep.deploy.first_look import expected_pins, look
from lockstep.deploy.plan import Download
from lockstep.fleet.hosts import Host

PLAN = spark("spark-1.local")
SPARK = Host(PLAN, {"ssh_user": "anna"})
MODELS = [Download(model, "hub", 40 * 10**9) for model in healthy(PLAN, 0)["checkpoints"]]
SSH = """\
case "$*" in
  *"sudo -n true") {sudo} ;;
  *) cat > /dev/null; cat "$(dirname "$0")/answer.json" ;;
esac
"""
ASKS = "echo 'sudo: a password is required' >&2; exit 1"


def disks_with(free: int) -> dict[str, Any]:
    return {path: {"device": 1, "free": free} for path in healthy(PLAN, 0)["disks"]}


@pytest.fixture
def look_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Gives the report on a Spark as NVIDIA ships it, with other answers of sudo or other facts."""

    def look_at(sudo: str = "exit 0", **facts: Any):
        monkeypatch.setenv("PATH", environment(tmp_path, SSH.format(sudo=sudo))["PATH"])
        answer = {**healthy(PLAN, time.time()), **facts}
        document = {"answers": {"preflight": answer}, "faults": {}}
        (tmp_path / "bin/answer.json").write_text(json.dumps(document))
        return look(SPARK, expected_pins([SPARK], MODELS))

    return look_at


def test_a_new_spark_is_ready_and_preflight_speaks_of_what_stands_in_the_way(look_at) -> None:
    readiness = look_at()
    assert readiness.findings == []
    says = "aarch64, DGX OS 7.2.3, driver 580.95.05, 3000 GiB free"
    assert (readiness.host, readiness.description) == ("spark-1.local", says)
    updates = {"once": {"state": "enabled", "running": True, "done": False}}
    # The disk must hold the models before there is a lock.
    size = sum(item.size or 0 for item in MODELS)
    free = int(size / GIB + PLAN.settings.expected.free_disk_gib) * GIB
    for facts, code, severity in (
        ({"updates": {**updates, "daily": [], "holder": None}}, "upgrade-pending", "warning"),
        ({"disks": disks_with(free)}, "disk-short", "error"),
        ({"architecture": "x86_64"}, "architecture", "warning"),
    ):
        (finding,) = look_at(**facts).findings
        assert (finding.code, finding.severity) == (code, severity)


FAILED = "Host key verification failed."
NO_KEY = f"No ED25519 host key is known for spark-1.local.\n{FAILED}"
CHANGED = f"@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\n{FAILED}"
DENIED = "anna@spark-1.local: Permission denied (publickey,password)."
UNKNOWN = "ssh: Could not resolve hostname spark-1.local: Name or service not known"
NO_ROUTE = "ssh: connect to host spark-1.local port 22: No route to host"


@pytest.mark.parametrize(
    ("output", "message", "remedy"),
    [
        (NO_KEY, "its host key is not known here yet", "`ssh anna@spark-1.local` shows the"),
        (CHANGED, "its host key is another than the one known here", "Only if it was installed"),
        (DENIED, "it lets no key of yours log in", "`ssh-copy-id anna@spark-1.local` brings yours"),
        (UNKNOWN, "nobody here knows its name", "Name its address instead, or put the name into"),
        (NO_ROUTE, f"no connection: {NO_ROUTE}", "Is it on, in this network, and does `ssh anna@"),
    ],
)
def test_what_keeps_ssh_from_a_host_is_named_with_its_remedy(output, message, remedy, look_at):
    (only,) = look_at(sudo=f"echo '{output}' >&2; exit 255").findings
    assert (only.code, only.severity, only.message) == ("no-login", "error", message)
    assert only.remedy.startswith(remedy)


def test_a_machine_is_judged_without_sudo(look_at) -> None:
    # Docker does not answer an account without rights.
    readiness = look_at(ASKS, disks=disks_with(30 * GIB), docker={"fault": "denied"})
    assert [item.code for item in readiness.findings] == ["disk-short", "no-sudo"]
    assert "with the line `anna ALL=(ALL) NOPASSWD: ALL`." in readiness.findings[1].remedy
