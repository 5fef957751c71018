"""A host that is wiped, deployed and freed of Lockstep is as before, also after a cut."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from stack import Host, until

# Without engines that are built and what builds them: what is built lies in one folder, and takes
# most of the time.
SMALL: dict[str, Any] = {
    "packages": ("earlyoom", "jq", "nftables", "python3-venv", "rsync"),
    "models": {"tiny": None, "mistral": None},
    "monitoring": {"enabled": True},
    "spark2__gateway": {"bind": "0.0.0.0", "tls": "own"},
    "gpu": {"max_clock_mhz": 1800},
    "boot": "last",
}
#: Files of the owner's, named as if they were ours.
THEIRS = (
    *("/etc/ssl/private/my-lockstep.key", "/etc/nginx/sites-enabled/lockstep.conf"),
    *("/etc/letsencrypt/renewal/lockstep.example.com.conf", "/etc/cron.d/lockstep-report"),
    *("/etc/systemd/system/lockstep-mine.service", "/var/lib/lockstep-mine/notes"),
    *("/etc/lockstep/my-notes.txt", "/usr/local/lib/lockstep/mine.py"),
)
KEPT = "/data/models/huggingface/lockstep-fetched /etc/lockstep/gateway /etc/lockstep/secrets"
#: Of what the system itself writes whenever accounts or packages come and go.
ITS_OWN = re.compile(
    r"^(path|file) /(etc/(passwd|group|shadow|gshadow|subuid|subgid)-|etc/ld.so.cache"
    r"|var/lib/(apt|dpkg|systemd|ucf)\b|var/cache/(apt|debconf|ldconfig))"
)
_SNAPSHOT = """
find /etc /usr/local /opt /root /home /srv -xdev -printf 'path %p %M %u:%g %l\\n'
find /data /var/lib /var/cache -maxdepth 3 -xdev \\( -path /var/lib/docker -o \
 -path /var/lib/containerd -o -path /var/lib/dpkg \\) -prune -o -printf 'path %p %M %u:%g\\n' \
 2>/dev/null
find /etc /usr/local -xdev -type f -exec sha256sum {} + \
 | sed 's/\\([^ ]*\\)  \\(.*\\)/file \\2 \\1/'
dpkg-query -Wf 'package ${Package} ${Version} ${db:Status-Abbrev}\\n'
getent passwd | sed 's/^/account /'; getent group | sed 's/^/group /'
systemctl list-unit-files --no-legend --plain --type=service,socket,timer | sed 's/^/unit /'
for key in swappiness min_free_kbytes; do echo "setting $key $(cat /proc/sys/vm/$key)"; done
nft list tables 2>/dev/null | grep lockstep
ls -d /run/lockstep* /sys/kernel/config/netconsole/lockstep 2>/dev/null
docker images --format 'image {{.Repository}} {{.ID}}'
docker volume ls --format 'volume {{.Name}}'
docker ps -a --format 'container {{.Names}}'; true
"""


def snapshot(host: Host) -> set[str]:
    """The state of a host that a deploy may change."""
    lines = (" ".join(line.split()) for line in host.root(_SNAPSHOT).splitlines())
    return {line for line in lines if line and not ITS_OWN.match(line)}


@pytest.mark.usefixtures("another_lab_afterwards")
def test_a_host_is_what_it_was(deployed_stack):
    """It leaves a Spark as it was before its first deploy."""
    two = deployed_stack.two
    small = deployed_stack.inventory("small", **SMALL, **deployed_stack.fabric_addresses())
    deployed_stack.lab("wipe", "spark2")
    for path in THEIRS:
        two.root(f"mkdir -p $(dirname {path}); echo '# mine' > {path}")
    # sudo notes in the operator's home that it was used.
    assert two.run("sudo -n true").code == 0
    earlier_snapshot = snapshot(two)
    drift = json.loads(deployed_stack.diff("--json", "--limit", "spark2").out)["differences"]
    assert [item["kind"] for item in drift] == ["Lockstep"]
    assert "not deployed yet" in deployed_stack.lockstep("status", "--limit", "spark2").out
    deployed_stack.good_deploy("-y", "--limit", "spark2", inventory=small)
    assert "lockstep" in two.root("nft list tables")
    assert two.switch("qwen").code == 0

    remove = partial(deployed_stack.lockstep, "remove", "--limit", "spark2", inventory=small)
    [plan] = json.loads(remove("--json").out).values()
    assert plan["unknown"] == [] and plan["goes"][-1][:2] == ["record", "/var/lib/lockstep-deploy"]
    goes = {name for _, name, _ in plan["goes"]}
    assert [path for path in THEIRS if goes & {path, path.rpartition("/")[2]}] == []
    stays = {thing for thing, _ in plan["stays"]}
    assert {"/etc/lockstep/my-notes.txt", "/usr/local/lib/lockstep/mine.py"} <= stays

    with ThreadPoolExecutor() as pool:
        cut = pool.submit(remove, "-y")
        gateway = "systemctl is-active --quiet lockstep-gateway"
        until(lambda: two.run(gateway).code, "the gateway is stopped")
        two.run("sudo -n pkill --signal KILL --full 'python3 -I -[c]'")
        assert cut.result().code == 2, cut.result().text
    two.root("test -e /var/lib/lockstep-deploy/found.json")

    result = remove("-y", "--keep", "weights,data")
    assert result.code == 0, result.text[-4000:]
    two.root(
        f"ls -d {KEPT}; ls /data/models/huggingface/lockstep-fetched/* /etc/lockstep/secrets/*"
    )
    assert "open-webui" in two.root("docker volume ls -q")
    left_units = two.root("ls /etc/systemd/system | grep lockstep || true")
    assert left_units.split() == ["lockstep-mine.service"]

    result = remove("-y")
    assert result.code == 0 and " 0 are not" in result.out, result.text[-4000:]
    later_snapshot = snapshot(two)
    assert sorted(later_snapshot - earlier_snapshot) == [], "what stayed"
    assert sorted(earlier_snapshot - later_snapshot) == [], "what went"
    two.logs(": remove of lab: done", "-t lockstep-audit")
    again = remove("-y")
    assert again.code == 0 and "nothing of Lockstep is here" in again.out
