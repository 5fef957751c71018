"""The rows of hostile.py: an actor's deed, the expected outcome, and the way to see it.

A row's function returns a text about the outcome, and fails (AssertionError) on an unexpected one.
"""

import os
import shlex
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from stack import SWITCH, until

#: Longest that one command of anybody may take, seconds; a switch with Docker hung takes a minute.
BOUND_S = 300.0
#: Folders of ours, for whoever looks for what is open to everybody.
OURS = (
    "/run/lockstep* /var/lib/lockstep* /etc/lockstep /var/log/lockstep /opt/lockstep "
    "/var/cache/lockstep /data/scripts /data/models /usr/local/lib/lockstep /etc/systemd/system"
)
#: The processes of qwen's container, known to the kernel.
QWEN_GROUP = "/sys/fs/cgroup/system.slice/system-lockstep.slice/system-lockstep-vllm.qwen36.slice"


@dataclass(frozen=True)
class Row:
    """One fault; `do` gets the site, and `words`."""

    name: str
    expectation: str
    do: Callable[..., str]
    words: tuple[object, ...] = ()


def short(code: int, text: str, most: int = 200) -> str:
    """Exit code and last words of an answer."""
    return f"rc {code}: …{' '.join(text.split())[-most:]}"


def expect_nothing(site, command: str, by: str) -> str:
    """Expect that a command prints nothing."""
    output = site.host.root(command) if by == "root" else site.run(f"{command}; true", by, 200).out
    assert not output.strip(), f"{by}: {output[:600]}"
    return "nothing"


def expect_refusals(site, by: str, *commands: str) -> str:
    """Expect each command to fail. $PROGRAM stands for what sudo lets an operator run."""
    program = site.host.root(
        "grep -o '/usr/bin/python3.*/usr/local/lib/lockstep' /etc/sudoers.d/lockstep | head -1"
    ).strip()
    went = []
    for command in commands:
        answer = site.run(command.replace("$PROGRAM", program), by, 60)
        if answer.code == 0:
            went.append(f"{command}: {short(answer.code, answer.text)}")
    assert not went, "; ".join(went)
    return f"{len(commands)} refused"


PRIVATE = (
    "/etc/lockstep/secrets /etc/lockstep/secrets/open-webui.env /etc/lockstep/gateway/keys.json "
    "/etc/lockstep/gateway /etc/lockstep/tools.env /etc/lockstep/weights.json "
    "/etc/lockstep/engine.json /etc/sudoers.d/lockstep /var/lib/lockstep-deploy/webui "
    "/var/lib/lockstep-gateway /run/lockstep/peers /var/log/journal/*/system.journal"
)
READABLE = (
    f"for each in {PRIVATE}; do cat $each >/dev/null 2>&1 && echo $each; "
    "ls $each/ >/dev/null 2>&1 && echo $each/; done; "
    "journalctl -u lockstep-gateway -n 3 -qo cat 2>/dev/null; "
    "for each in /run/docker.sock /run/lockstep*/*.sock /run/lockstep*.sock; do "
    'python3 -c "import socket, sys; s = socket.socket(socket.AF_UNIX); '
    's.connect(sys.argv[1])" $each 2>/dev/null && echo $each; done'
)
WRITABLE = f"find {OURS} ! -type l -writable 2>/dev/null"
LOOSE = (
    # uv makes its locks writable for everybody, so that folder is its account's alone.
    f"find {OURS} -path '*/uv-cache/*' -prune -o ! -type l ! -type s -perm -o=w -print "
    "2>/dev/null; find /opt/lockstep/engines/uv-cache -maxdepth 0 -perm /077; "
    "find /etc/lockstep/secrets /etc/lockstep/gateway -perm /o=rwx 2>/dev/null; "
    "find /usr/local/lib/lockstep /etc/systemd/system /data/scripts ! -user root 2>/dev/null; true"
)
#: Names in common folders and abstract sockets that another account could have first.
PREDICTABLE = (
    "find /tmp /var/tmp /dev/shm -mindepth 1 -maxdepth 1 ! -name 'systemd-private-*' "
    "! -name '.*-unix' ! -user eve ! -user olga ! -user spark; "
    "ss -Hxlp | grep -F ' @' | grep -v '@/org/\\|systemd\\|dbus\\|containerd' || true"
)


def predictable(site) -> str:
    site.be_hot("qwen")
    return expect_nothing(site, PREDICTABLE, "root")


UNITS = (
    *(
        f"systemctl --no-ask-password {verb}"
        for verb in (
            *("stop lockstep-gateway", "kill vllm-qwen36", "start vllm", "restart docker"),
            *("mask --runtime lockstep-memory", "daemon-reload", "reboot"),
            "set-property --runtime vllm-qwen36 MemoryMax=1M",
            "edit --full lockstep-wedge",
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


def units(site) -> str:
    site.be_hot("qwen")
    services = "lockstep-gateway vllm-qwen36 lockstep-memory docker"
    show = f"systemctl show -p InvocationID --value {services}"
    earlier_ids = site.host.root(show)
    observation = expect_refusals(site, "eve", *UNITS)
    assert site.host.root(show) == earlier_ids, "a unit was started again"
    return observation


def notify(site) -> str:
    """eve tells systemd that she is a service, or that one has ended."""
    earlier_state = site.host.root("systemctl show -p MainPID -p StatusText lockstep-gateway")
    site.run(
        'python3 -c "import socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); '
        "s.sendto(b'READY=1\\nMAINPID=1\\nSTATUS=eve\\nSTOPPING=1', '/run/systemd/notify')\"; true",
        "eve",
    )
    later_state = site.host.root("systemctl show -p MainPID -p StatusText lockstep-gateway")
    assert earlier_state == later_state, later_state
    return "ignored"


OLGA = tuple(
    f"sudo -n {words}"
    for words in (
        *("touch /run/root-was-here", "-i", "-s", "sh", "bash -c id", "-u lockstep id"),
        *("-e /etc/hosts", "-g docker docker ps", "-u eve id", "-R / id", "-T 1 id"),
        *(
            f"{variable} $PROGRAM switch qwen"
            for variable in (
                *("-E", "PYTHONPATH=/tmp", "LD_PRELOAD=/tmp/x.so", "PYTHONSTARTUP=/tmp/x"),
                "-D /tmp",
            )
        ),
        *(
            f"$PROGRAM {words}"
            for words in (
                *("switch 'qwen\nid'", "switch -- qwen", "switch qwen --worker", "switch '*'"),
                *("switch qwen --finish", "switch ../../tmp/x", "switch qwen extra words"),
                *("switch qwen; sudo -n id", "-c 'import os'", "../../../bin/sh", "keys"),
                *("sense tiny", "gc"),
            )
        ),
    )
)
#: What an operator may not do by way of the environment of the switch that is hers.
OLGA_OWN = (
    "cd /tmp/olga && PAGER=./evil LESSOPEN='|./evil %s' EDITOR=./evil BASH_ENV=./evil ENV=./evil "
    f"LANG=/tmp/olga/x PYTHONPATH=/tmp/olga  TMPDIR=/tmp/olga {SWITCH}"
)
LINKS = (
    "ln -s /etc/shadow /data/scripts/llm/x",
    "mv /data/scripts/llm /data/scripts/x",
    "ln -s /tmp/x /run/lockstep/switch.json",
    "touch /run/lockstep/jobs/eve.lock",
    "touch /run/lockstep/switch.log",
    "mkfifo /var/lib/lockstep/x",
    "ln /etc/lockstep/engine.json /tmp/hostile-engine.json",
    "ln /run/lockstep/switch.lock /tmp/hostile.lock",
)


def own_environment(site) -> str:
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
        codes = [
            site.run(command, "olga").code
            for command in (
                f"{OLGA_OWN} status",
                f"{OLGA_OWN} {site.cold}",
                f"ulimit -f 0; {SWITCH} status",
                f"ulimit -n 8; {SWITCH} status; ulimit -v 20000; {SWITCH} none; true",
            )
        ]
        ran = site.host.root("cat /tmp/olga/ran 2>/dev/null; true")
    finally:
        site.host.root("rm -rf /tmp/olga")
    assert "uid=0" not in ran and not ran.startswith("0"), f"root ran it: {ran}"
    return f"rc {codes}; nothing of hers ran as root"


def switches_again(site) -> str:
    """Wait for the end of what is under way; the next switch works."""
    until(lambda: site.host.status()["switching"] is None, "the switch is over", 200)
    later_hot = site.hot
    assert later_hot is not None, "nothing is hot after it"
    answer = site.switch(site.cold)
    assert answer.code == 0, short(answer.code, answer.text)
    return f"{later_hot} hot after it, next switch rc 0"


def clients(site, number: int) -> str:
    """The client of a switch gets a signal; the switch ends, and the next one works."""
    # A name of its own: what an earlier program said is no answer of this one.
    unit = f"hostile-client-{time.time_ns()}"
    site.host.root(f"systemd-run -q --collect --unit={unit} --uid=olga {SWITCH} {site.cold}")
    until(lambda: site.host.status()["switching"] is not None, "it switches", 30)
    # It may have ended.
    site.host.look(f"systemctl kill -s {number} {unit}")
    return switches_again(site)


def ssh_client(site) -> str:
    client = site.host.begin(f"{SWITCH} {site.cold}")
    try:
        until(lambda: site.host.status()["switching"] is not None, "it switches", 30)
        os.kill(client.pid, signal.SIGSTOP)
        return switches_again(site)
    finally:
        client.kill()
        client.wait()


def pipe(site) -> str:
    model = site.cold
    site.run(f"{SWITCH} {model} | head -c 1 > /dev/null; true", "olga")
    until(lambda: site.host.status()["switching"] is None, "the switch is over", 200)
    assert site.hot == model, f"hot: {site.hot}"
    return f"{model} is hot although nobody listened"


def full(site, place: str) -> str:
    """A folder has no room while somebody switches."""
    site.host.root(
        f"mount -t tmpfs -o size=16k,mode=1777 hostile {place}; "
        f"dd if=/dev/zero of={place}/x bs=4k count=9 2>/dev/null; true"
    )
    answer, status = site.switch(site.cold), site.switch("status")
    site.host.root(f"umount -l {place}")
    reply = short(answer.code, answer.text, 120)
    assert status.code == 0 and answer.text.strip(), reply
    assert answer.code == 0 or site.hot is not None, f"{reply}; nothing is hot"
    return reply


def docker(site, hang: str, heal: str, model: str) -> str:
    """Docker is made to fail while qwen is hot; a switch is refused, or ends the hot model."""

    def alive() -> list[str]:
        processes = f"cat {QWEN_GROUP}/docker-*.scope/cgroup.procs 2>/dev/null; true"
        return site.host.root(processes).split()

    site.be_hot("qwen")
    # Where dockerd dies, its client does, and then the unit ends the container at once.
    earlier_count = len(alive())
    site.host.root(hang)
    try:
        answer = site.switch(model)
        processes = alive()
        status = site.switch("status", limit_s=60)
    finally:
        site.host.run(f"sudo -n sh -c {shlex.quote(heal)}")
    reply = short(answer.code, answer.text, 160)
    assert status.text.strip(), "status says nothing"
    assert earlier_count > 0, "qwen is hot and has no process"
    assert answer.code != 0 or not processes, f"rc 0 beside {len(processes)} processes of qwen"
    assert answer.code == 0 or len(answer.text) > 20, f"no word: {reply}"
    return f"{len(processes)} of {earlier_count} processes of qwen live; {reply}"


KILLED = (
    "systemctl mask --runtime --quiet docker.service docker.socket; "
    "pkill -9 -x dockerd; sleep 1; rm -f /run/docker.sock; true"
)
REVIVED = (
    "systemctl unmask --runtime --quiet docker.service docker.socket; "
    "systemctl reset-failed docker.service docker.socket; "
    "systemctl restart docker.socket; systemctl start docker"
)
AWAY, BACK = (
    "mv /run/docker.sock /run/docker.sock.away",
    "mv /run/docker.sock.away /run/docker.sock",
)
#: Name of the row → the fault, what makes it and heals it, and what is switched to.
DOCKER = {
    "S9": ("Docker frozen, container to container", "dockerd", "mistral"),
    "S9b": ("Docker frozen, container to venv", "dockerd", "tiny"),
    "W1": ("Docker frozen, switch.sh none", "dockerd", "none"),
    "W2": ("dockerd killed while its container lives", (KILLED, REVIVED), "tiny"),
    "W3": ("containerd frozen", "containerd", "mistral"),
    "W4": ("the container's shim frozen", "containerd-shim", "mistral"),
    "W5": ("Docker's socket is gone", (AWAY, BACK), "mistral"),
}


def docker_rows():
    for name, (fault, cause, model) in DOCKER.items():
        frozen = f"pkill -STOP -x {cause}", f"pkill -CONT -x {cause}"
        hang, heal = frozen if isinstance(cause, str) else cause
        expectation = f"{fault}: refused, or qwen ended first, and what it says is so"
        yield Row(name, expectation, docker, (hang, heal, model))


def heal_by_deploy(site) -> str:
    result = site.stack.deploy()
    assert result.code == 0, short(result.code, result.output)
    differs = site.drift()
    assert differs.code == 0, short(differs.code, differs.text, 400)
    return "deploy rc 0, diff has no finding"


ROWS = (
    Row("E2", "eve reads no secret, journal or socket", expect_nothing, (READABLE, "eve")),
    Row("E3", "eve may write nothing of ours", expect_nothing, (WRITABLE, "eve")),
    Row("E3b", "nothing of ours is writable for everybody", expect_nothing, (LOOSE, "root")),
    Row("E4", "eve stops, kills, starts or limits nothing: systemd, D-Bus, polkit, cgroups", units),
    Row("E6", "olga: words beyond sudo's rule are refused", expect_refusals, ("olga", *OLGA)),
    Row("E6-environment", "olga: her environment has root run nothing of hers", own_environment),
    Row("E6-links", "olga: no link, file, queue in our folders", expect_refusals, ("olga", *LINKS)),
    Row("L2", "no name of ours in common folders that eve could have first", predictable),
    Row("L3", "eve speaks to systemd's notify socket: ignored", notify),
    Row("L5", "olga may write nothing of ours", expect_nothing, (WRITABLE, "olga")),
    *docker_rows(),
    Row("S12", "the ssh client is frozen: the switch ends, the next one works", ssh_client),
    Row("F1", "/tmp is full: a switch works or says why", full, ("/tmp",)),
    Row("F2", "/dev/shm is full: the same", full, ("/dev/shm",)),
    Row("K0", "the switch's client gets SIGKILL: it ends, the next one works", clients, (9,)),
    Row("K4", "nobody reads what the switch says: it ends", pipe),
    Row("Z", "after all of them a deploy heals and diff finds nothing", heal_by_deploy),
)
