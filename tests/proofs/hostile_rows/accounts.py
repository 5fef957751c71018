"""Deeds of a host's accounts: locks, files, units, ports, words of sudo."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from hostile_rows.row import OURS, SWITCH, UNITS, Row, expect, row, short

if TYPE_CHECKING:
    from hostile import Site


def expect_refusals(site: Site, *commands: str, by: str = "eve", unless: str = "") -> str:
    """Expect each command to fail. `unless`: text that a failing command must not print."""
    went = []
    for command in commands:
        answer = site.run(command, by, 60)
        if answer.code == 0 or (unless and unless in answer.text):
            went.append(f"{command}: {short(answer)}")
    expect(not went, "; ".join(went))
    return f"{len(commands)} refused"


PRIVATE = (
    "/etc/lockstep/secrets /etc/lockstep/secrets/open-webui.env /etc/lockstep/gateway/keys.json "
    "/etc/lockstep/gateway /etc/lockstep/tools.env /etc/lockstep/weights.json "
    "/etc/lockstep/engine.json /etc/sudoers.d/lockstep /var/lib/lockstep-deploy/webui "
    "/var/lib/lockstep-gateway /run/lockstep/peers /var/log/journal/*/system.journal"
)


def reads(site: Site) -> str:
    got = site.run(
        f"for each in {PRIVATE}; do cat $each >/dev/null 2>&1 && echo $each; "
        "ls $each/ >/dev/null 2>&1 && echo $each/; done; "
        "journalctl -u lockstep-gateway -n 3 -qo cat 2>/dev/null; "
        "for each in /run/docker.sock /run/lockstep*/*.sock /run/lockstep*.sock; do "
        'python3 -c "import socket, sys; s = socket.socket(socket.AF_UNIX); '
        's.connect(sys.argv[1])" $each 2>/dev/null && echo $each; done; true',
        "eve",
    )
    expect(not got.out.strip(), f"eve reads {got.out}")
    return "all refused"


def writes(site: Site, account: str) -> str:
    answer = site.run(f"find {OURS} {UNITS} ! -type l -writable 2>/dev/null; true", account, 200)
    expect(not answer.out.strip(), f"{account} may write {answer.out[:600]}")
    return "nothing"


def modes(site: Site) -> str:
    loose = site.host.root(
        # uv makes its locks writable for everybody, so that folder is its account's alone.
        f"find {OURS} {UNITS} -path '*/uv-cache/*' -prune -o ! -type l ! -type s -perm -o=w -print "
        "2>/dev/null; find /opt/lockstep/engines/uv-cache -maxdepth 0 -perm /077; "
        "find /etc/lockstep/secrets /etc/lockstep/gateway -perm /o=rwx 2>/dev/null; "
        "find /usr/local/lib/lockstep /etc/systemd/system /data/scripts ! -user root 2>/dev/null; "
        "true"
    )
    expect(not loose.strip(), loose[:600])
    return "no file or folder is writable for everybody, no secret readable, root's are root's"


def predictable(site: Site) -> str:
    """Names in common folders and abstract sockets that another account could have first."""
    site.be_hot("qwen")
    listing = site.host.root(
        "find /tmp /var/tmp /dev/shm -mindepth 1 -maxdepth 1 ! -name 'systemd-private-*' "
        "! -name '.*-unix' ! -user eve ! -user olga ! -user spark; "
        "ss -Hxlp | grep -F ' @' | grep -v '@/org/\\|systemd\\|dbus\\|containerd' || true"
    )
    expect(not listing.strip(), listing[:600])
    return "nothing of ours in /tmp, /var/tmp, /dev/shm, and no abstract socket"


def units(site: Site) -> str:
    site.be_hot("qwen")
    show = (
        "systemctl show -p InvocationID --value lockstep-gateway vllm-qwen36 lockstep-memory docker"
    )
    earlier_ids = site.host.root(show)
    refusals = expect_refusals(
        site,
        *(
            f"systemctl --no-ask-password {verb}"
            for verb in (
                "stop lockstep-gateway",
                "kill vllm-qwen36",
                "start vllm",
                "restart docker",
                "mask --runtime lockstep-memory",
                "daemon-reload",
                "set-property --runtime vllm-qwen36 MemoryMax=1M",
                "edit --full lockstep-wedge",
                "reboot",
            )
        ),
        "systemd-run --no-ask-password touch /run/root-was-here",
        "kill -9 $(systemctl show -p MainPID --value lockstep-gateway)",
        "kill -STOP $(systemctl show -p MainPID --value vllm-qwen36)",
        "pkexec touch /run/root-was-here </dev/null",
        "busctl call org.freedesktop.login1 /org/freedesktop/login1 "
        "org.freedesktop.login1.Manager PowerOff b false",
        "busctl call org.freedesktop.systemd1 /org/freedesktop/systemd1 "
        "org.freedesktop.systemd1.Manager StopUnit ss lockstep-gateway.service replace",
        "echo 1000 > /proc/$(systemctl show -p MainPID --value lockstep-gateway)/oom_score_adj",
        "echo 0 > /sys/fs/cgroup/system.slice/lockstep-gateway.service/memory.max",
        "mkdir /sys/fs/cgroup/system.slice/eve",
        "docker ps",
    )
    expect(site.host.root(show) == earlier_ids, "a unit was started again")
    return refusals


def notify(site: Site) -> str:
    """eve tells systemd that she is a service, or that one has ended."""
    earlier_state = site.host.root("systemctl show -p MainPID -p StatusText lockstep-gateway")
    site.run(
        'python3 -c "import socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); '
        "s.sendto(b'READY=1\\nMAINPID=1\\nSTATUS=eve\\nSTOPPING=1', '/run/systemd/notify')\"; true",
        "eve",
    )
    later_state = site.host.root("systemctl show -p MainPID -p StatusText lockstep-gateway")
    expect(earlier_state == later_state, later_state)
    return "ignored"


OLGA = (
    ["sudo -n touch /run/root-was-here"]
    + [
        f"sudo -n {option}"
        for option in ("-i", "-s", "sh", "bash -c id", "-u lockstep id", "-e /etc/hosts")
    ]
    + ["sudo -n -g docker docker ps", "sudo -n -u eve id", "sudo -n -R / id", "sudo -n -T 1 id"]
    + [
        f"sudo -n {variable} $PROGRAM switch qwen"
        for variable in (
            "-E",
            "PYTHONPATH=/tmp",
            "LD_PRELOAD=/tmp/x.so",
            "PYTHONSTARTUP=/tmp/x",
            "-D /tmp",
        )
    ]
    + [
        f"sudo -n $PROGRAM {words}"
        for words in (
            "switch 'qwen\nid'",
            "switch -- qwen",
            "switch qwen --worker",
            "switch qwen --finish",
            "switch ../../tmp/x",
            "switch qwen extra words",
            "switch '*'",
            "switch qwen; sudo -n id",
            "-c 'import os'",
            "../../../bin/sh",
            "keys",
            "sense tiny",
            "gc",
        )
    ]
)

#: What an operator may not do by way of the environment of the switch that is hers.
OLGA_OWN = (
    "cd /tmp/olga && PAGER=./evil LESSOPEN='|./evil %s' EDITOR=./evil BASH_ENV=./evil ENV=./evil "
    "LANG=/tmp/olga/x PYTHONPATH=/tmp/olga  TMPDIR=/tmp/olga "
    f"{SWITCH} status"
)


def operator(site: Site) -> str:
    program = site.host.root(
        "grep -o '/usr/bin/python3.*/usr/local/lib/lockstep' /etc/sudoers.d/lockstep | head -1"
    ).strip()
    return expect_refusals(
        site, *(command.replace("$PROGRAM", program) for command in OLGA), by="olga"
    )


def operator_environment(site: Site) -> str:
    evil = "#!/bin/sh\nsudo -n touch /run/root-was-here\nid > /tmp/olga/ran\n"
    python = "import os\nopen('/tmp/olga/ran', 'a').write(str(os.geteuid()))\n"
    site.run(
        "mkdir -p /tmp/olga; cd /tmp/olga; "
        f"printf %s {shlex.quote(evil)} > evil; chmod +x evil; "
        f"for each in json sitecustomize usercustomize argparse; do "
        f"printf %s {shlex.quote(python)} > $each.py; done",
        "olga",
    )
    try:
        answers = [site.run(OLGA_OWN, "olga")]
        model = "mistral" if site.hot == "qwen" else "qwen"
        answers.append(site.run(OLGA_OWN.replace("status", model), "olga"))
        answers.append(site.run(f"ulimit -f 0; {SWITCH} status", "olga"))
        answers.append(
            site.run(f"ulimit -n 8; {SWITCH} status; ulimit -v 20000; {SWITCH} none; true", "olga")
        )
        ran = site.host.root("cat /tmp/olga/ran 2>/dev/null; true")
    finally:
        site.host.root("rm -rf /tmp/olga")
    expect("uid=0" not in ran and not ran.startswith("0"), f"root ran it: {ran}")
    return f"rc {[answer.code for answer in answers]}; nothing of hers ran as root"


def links(site: Site) -> str:
    return expect_refusals(
        site,
        "ln -s /etc/shadow /data/scripts/llm/x",
        "mv /data/scripts/llm /data/scripts/x",
        "ln -s /tmp/x /run/lockstep/switch.json",
        "touch /run/lockstep/jobs/eve.lock",
        "touch /run/lockstep/switch.log",
        "mkfifo /var/lib/lockstep/x",
        "ln /etc/lockstep/engine.json /tmp/hostile-engine.json",
        "ln /run/lockstep/switch.lock /tmp/hostile.lock",
        by="olga",
    )


ROWS = (
    Row("E2", "eve reads no secret, journal or socket", reads),
    row("E3", "eve may write nothing of ours", writes, "eve"),
    Row("E3b", "nothing of ours is writable for everybody", modes),
    Row("E4", "eve stops, kills, starts or limits nothing: systemd, D-Bus, polkit, cgroups", units),
    Row("E6", "olga: words, flags and variables of sudo beyond the rule are refused", operator),
    Row(
        "E6-environment",
        "olga: nothing of hers runs as root by way of the environment",
        operator_environment,
    ),
    Row("E6-links", "olga: no link, file or queue in our folders", links),
    Row("L2", "no name of ours in common folders that eve could have first", predictable),
    Row("L3", "eve speaks to systemd's notify socket: ignored", notify),
    row("L5", "olga may write nothing of ours", writes, "olga"),
)
