"""Other services of a Spark use apt too: a deploy waits for them, and says for whom."""

from __future__ import annotations

import shlex

from stack import Stack, until

MARK = "/var/lib/nvidia-spark-run-apt-upgrade-once/done"
# Stands in for the Dashboard's refresh: apt and dpkg lock with fcntl.
HOLD = """
import fcntl, signal
held = [open(path, "w") for path in ("/var/lib/dpkg/lock-frontend", "/var/lib/apt/lists/lock")]
for file in held:
    fcntl.lockf(file, fcntl.LOCK_EX)
open("/run/held", "w").close()
signal.pause()
"""


def test_a_deploy_waits_for_apts_locks_and_names_who_has_them(deployed: Stack) -> None:
    one = deployed.one
    one.root("apt-get -qq -y remove jq; rm -f /run/held")
    hold = shlex.quote(HOLD)
    one.root(f"systemd-run -q --collect --unit=dashboard-stand-in /usr/bin/python3 -c {hold}")
    until(lambda: one.run("test -e /run/held").code == 0, "the locks are held")
    deploy = deployed.start("-y", "--limit", one.name)
    deploy.says(
        r"dpkg: waited 0 s of 10 min, /var/lib/dpkg/lock-frontend is held by python3 "
        r"\(process \d+, dashboard-stand-in\.service\)"
    )
    one.root("systemctl stop dashboard-stand-in")
    done = deploy.end()
    assert done.code == 0, done.output[-6000:]
    assert "Base | Install packages" in done.changed
    assert one.root("dpkg-query -W -f '${db:Status-Status}' jq") == "installed"


def test_the_one_shot_upgrade_is_warned_of_until_it_is_done(deployed: Stack) -> None:
    one = deployed.one
    one.root(f"rm {MARK}")
    try:
        warned = deployed.good_deploy("--dry")
    finally:
        one.root(f"touch {MARK}")
    rows = [line.split() for line in warned.output.splitlines() if "upgrade-pending:" in line]
    assert [row[:2] for row in rows] == [[one.name, "warning"]]
    assert "upgrade-pending" not in deployed.good_deploy("--dry").output
