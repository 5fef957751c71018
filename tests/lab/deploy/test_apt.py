"""Other services of a Spark use apt too: a deploy waits for them, and says for whom."""

import json
import shlex

import pytest
from stack import until

MARK = "/var/lib/nvidia-spark-run-apt-upgrade-once/done"
# Stands in for a service that works for the Dashboard: apt and dpkg lock with fcntl.
APTD = """#!/usr/bin/python3
import fcntl, signal
held = [open(path, "w") for path in ("/var/lib/dpkg/lock-frontend", "/var/lib/apt/lists/lock")]
for file in held:
    fcntl.lockf(file, fcntl.LOCK_EX)
open("/run/held", "w").close()
signal.pause()
"""
STATUS = "dpkg-query -W -f '${db:Status-Status}'"
DEAD = "http://10.77.0.1:3141/baseos/8"
SOURCE = "/etc/apt/sources.list.d/dgx.list"


@pytest.fixture
def busy_host(deployed_stack):
    """A host with four faults of apt, which then has none.

    apt is in use, an earlier run of it was cut off, a source of packages is dead, and an upgrade of
    the vendor is still due.
    """
    host = deployed_stack.spark1
    host.root(
        "apt-get -qq -y remove jq; cd /var/tmp && apt-get -qq download jq && dpkg --unpack jq_*.deb"
    )
    # So it is where dpkg was killed: apt refuses to work until some dpkg has written.
    host.root(f"touch /var/lib/dpkg/updates/0000; rm -f /run/held {MARK}")
    host.root(f"echo 'deb [trusted=yes] {DEAD} ./' > {SOURCE}")
    host.root(f"echo {shlex.quote(APTD)} > /run/aptd; chmod 755 /run/aptd")
    host.root("mount -o remount,exec /run; systemd-run -q --collect --unit=aptd-stand-in /run/aptd")
    until(lambda: host.look("test -e /run/held").code == 0, "the locks are held")
    yield host
    host.root("systemctl stop aptd-stand-in 2>/dev/null || true")
    host.root(f"touch {MARK}; rm -f {SOURCE} /var/tmp/jq_*.deb; apt-get -qq update")


def test_a_deploy_waits_for_apts_locks_and_finishes_what_a_cut_off_run_left(
    deployed_stack, busy_host
):
    deploy = deployed_stack.start("-y", "--limit", busy_host.name)
    wait_message = "packages prepare: waited 0 s of 30 min, /var/lib/dpkg/lock-frontend is held by"
    deploy.says(wait_message + r" aptd \(process \d+, aptd-stand-in\.service\)")
    busy_host.root("systemctl stop aptd-stand-in")
    result = deploy.end()
    assert result.code == 0, result.output[-6000:]
    output = " ".join(result.output.split())
    assert "spark1 warning apt-busy: /var/lib/dpkg/lock-frontend is held by aptd" in output
    assert "`sudo systemctl stop aptd-stand-in.service` frees the lock" in output
    # The one-shot upgrade that is to come.
    assert output.count("spark1 warning upgrade-pending:") == 1
    assert "Base | Install packages" in result.changed_operations
    assert busy_host.root(f"{STATUS} jq") == "installed"
    assert f"warning: a source of apt fails: Failed to fetch {DEAD}/./Packages" in result.output
    # It is in the last lines too, with the file; what was to come has come.
    closing = " ".join(result.output.partition("Note:")[2].split())
    assert f"{busy_host.name}: warning: a source of apt fails: Failed to fetch {DEAD}" in closing
    assert f"It stands in {SOURCE}: correct the source" in closing
    record = json.loads(busy_host.root("cat /var/lib/lockstep-deploy/packages.json"))
    assert record["coming"] == []
