"""Deeds of a host's accounts: locks, files, units, ports, words of sudo."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from stack import until

from hostile_rows.programs import FAKE, HOLD
from hostile_rows.row import (
    BOUND_DEPLOY,
    CHAT_OF,
    OURS,
    QWEN_GROUP,
    SWITCH,
    UNITS,
    Row,
    alive,
    expect,
    heal_by_deploy,
    row,
    short,
)

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


def hold(site: Site) -> str:
    """Have eve hold every lock that she can; returns her program's output."""
    site.begin_python("hold", HOLD, *site.host.root(f"ls -d {OURS}").split())
    until(lambda: "EVE HOLDS" in site.saw("hold"), "eve holds what she can")
    return site.saw("hold").splitlines()[-1]


def locked_switch(site: Site) -> str:
    locks = hold(site)
    answer = site.switch("mistral" if site.hot == "qwen" else "qwen")
    expect(answer.code == 0, short(answer))
    return f"{locks}; switch rc 0"


def locked_deploy(site: Site) -> str:
    locks = hold(site)
    site.host.root("systemctl stop lockstep-wedge.timer")
    result = site.deploy(limit_s=BOUND_DEPLOY)
    expect(result.code == 0, short(result))
    return f"{locks}; deploy rc 0"


def locked_jobs(site: Site) -> str:
    locks = site.host.root("ls /run/lockstep/*.lock /run/lockstep/jobs/*.lock").split()
    lock_answer = site.run(
        "for lock in "
        + " ".join(locks)
        + "; do flock --nonblock $lock echo $lock 2>/dev/null; done; true",
        "eve",
    )
    expect(not lock_answer.out, f"eve can lock {lock_answer.out}")
    hold(site)
    answer = site.switch("none")
    expect(answer.code == 0, short(answer))
    return f"none of {len(locks)} locks opens; switch.sh none rc 0"


def fall(site: Site) -> str:
    """Memory falls below the minimum of qwen, which is hot; qwen is ended, and a model comes
    back."""
    start = site.host.root("date +%s").strip()
    holding = 118 - site.host.status()["memory_gib"]["available"]
    site.memory(holding + 3)
    until(lambda: not alive(site), "the memory watch has ended the engine", 60)
    site.memory(118)
    until(lambda: site.host.status()["models"]["qwen"]["memory_kill"], "its end is told", 60)
    until(lambda: site.host.status()["switching"] is None, "what follows is over", 180)
    log = site.host.root(f"journalctl -u lockstep-memory --since @{start} -o cat --no-pager")
    expect("not killed" not in log and "is left to who was switching" not in log, log[-300:])
    return f"ended by the memory watch, then {site.hot} hot"


def locked_memory_watch(site: Site) -> str:
    site.be_hot("qwen")
    hold(site)
    return fall(site)


def healed_after_memory_kill(site: Site) -> str:
    """An engine that the memory watch ended is a finding of `diff` until it is started again."""
    site.be_hot("qwen")
    return heal_by_deploy(site)


def locked_control(site: Site) -> str:
    """Commands of the control machine while eve holds all locks that she can."""
    locks = hold(site)
    outcomes = []
    for words in (("status",), ("diff",), ("log",)):
        answer = site.control(*words)
        expect(answer.code in (0, 1) and "Traceback" not in answer.text, short(answer))
        outcomes.append(f"{words[0]} rc {answer.code}")
    key = site.new_key("bert")
    answer = site.stack.lockstep("key revoke", "bert")
    expect(bool(key) and answer.code == 0, short(answer))
    return f"{locks}; {', '.join(outcomes)}, a key made and revoked"


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


def needles(site: Site) -> str:
    """eve searches every file that she can read for the secrets of the host, and for anna's key."""
    site.host.root(
        "umask 022; (sed -n 's/^[A-Z_]*=//p' /etc/lockstep/secrets/*.env; "
        "cat /etc/lockstep/secrets/*key* 2>/dev/null) | tr -d '\\042' | awk 'length > 15' "
        "> /run/hostile-needles"
    )
    site.host.run(f"echo {site.key} | sudo -n tee -a /run/hostile-needles > /dev/null")
    try:
        count = int(site.host.root("wc -l < /run/hostile-needles"))
        answer = site.run(
            "grep -rslFf /run/hostile-needles /etc /run /var/log /var/lib/lockstep* /data/scripts "
            "/usr/local/lib/lockstep /proc/[0-9]*/cmdline /proc/[0-9]*/environ "
            "--exclude=hostile-needles 2>/dev/null; true",
            "eve",
        )
    finally:
        site.host.root("rm -f /run/hostile-needles")
    expect(not answer.out.strip(), f"a secret is in {answer.out}")
    return f"none of {count} secrets is in what she reads"


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


def port(site: Site, host: str, number: int, model: str, words: str = "") -> str:
    """eve listens where a model's engine will; it never gets hot by her."""
    site.be_hot("mistral" if model == "qwen" else "qwen")
    earlier_hot = site.hot
    site.begin_python("fake", FAKE, host, str(number))
    until(lambda: "EVE HAS" in site.saw("fake"), "eve has the port")
    answer = site.switch(model)
    site.ask("/v1/chat/completions", body={**CHAT_OF, "model": model}, by="spark")
    request_lines = [line for line in site.saw("fake").splitlines() if "READS POST" in line]
    expect(not request_lines, f"eve read {request_lines[:2]}")
    if answer.code == 0:
        expect(bool(words == "harmless"), f"hot beside her: {short(answer)}")
        return "hot; she was asked nothing"
    expect("eve" in answer.text and site.hot == earlier_hot, short(answer))
    return f"rc {answer.code}, names eve, {earlier_hot} stays hot"


def port_between(site: Site) -> str:
    """eve waits for the port of the engine that is hot, and has it as soon as it is stopped."""
    site.be_hot("qwen")
    site.begin_python("fake", FAKE, "127.0.0.1", "30001")
    until(lambda: "EVE WAITS" in site.saw("fake"), "eve waits")
    expect("EVE HAS" not in site.saw("fake"), "she shares the port of a living engine")
    answer = site.switch("mistral")
    expect(answer.code == 0, short(answer))
    until(lambda: "EVE HAS" in site.saw("fake"), "eve has the port")
    answer = site.switch("qwen")
    expect(answer.code != 0 and "eve" in answer.text and site.hot == "mistral", short(answer))
    expect("READS POST" not in site.saw("fake"), site.saw("fake")[-300:])
    return f"rc {answer.code}, names eve, mistral stays hot"


def port_of_ended_engine(site: Site) -> str:
    """An engine dies and eve has its port: no start is hers, status says why, and a switch heals.

    Nothing is hot meanwhile: no other model is started by itself, and this one has no port.
    """
    site.be_hot("qwen")
    site.begin_python("fake", FAKE, "127.0.0.1", "30001")
    site.host.root("kill -9 $(cat " + QWEN_GROUP + "/docker-*.scope/cgroup.procs)")
    until(lambda: "EVE HAS" in site.saw("fake"), "eve has the port")
    until(
        lambda: "of eve) listens" in site.host.status()["models"]["qwen"]["detail"],
        "status names her as what keeps qwen from its start",
    )
    expect(site.hot is None, f"{site.hot} is hot")
    site.ask("/v1/chat/completions", body={**CHAT_OF, "model": "qwen"}, by="spark")
    request_lines = [line for line in site.saw("fake").splitlines() if "READS POST" in line]
    expect(not request_lines, f"eve read {request_lines[:2]}")
    site.signal("fake", 9)
    answer = site.switch("qwen")
    expect(answer.code == 0, short(answer))
    return "status names her, she was asked nothing; once she is gone a switch is rc 0"


def gateway_port(site: Site, host: str) -> str:
    site.be_hot("qwen")
    site.begin_python("fake", FAKE, host, "8090")
    until(lambda: "EVE WAITS" in site.saw("fake"), "eve waits")
    for _ in range(5):
        site.host.run("sudo -n systemctl restart lockstep-gateway")
    site.ask("/v1/models", "-H", f"Authorization: Bearer {site.key}", by="spark")
    output = site.saw("fake")
    if "EVE HAS" in output:
        read = "and reads a key" if site.key in output else "and reads no key"
        status = site.switch("status")
        remark = "status says so" if "gateway" in status.text else "status has no word of it"
        raise AssertionError(f"eve has the gateway's port {read}; {remark}")
    return "5 restarts, never hers"


def webui_port(site: Site) -> str:
    site.begin_python("fake", FAKE, "127.0.0.1", "8080")
    until(lambda: "EVE WAITS" in site.saw("fake"), "eve waits")
    site.host.run("sudo -n systemctl restart open-webui", 120)
    answer = site.host.run("curl -sS --max-time 5 -d 'password=secret' 127.0.0.1:8080/api/v1/auths")
    output = site.saw("fake")
    if "EVE HAS" in output:
        until(
            lambda: re.search(
                r"Open WebUI is down: .* of eve\)", " ".join(site.switch("status").text.split())
            ),
            "status says that Open WebUI is down, and names her",
        )
        site.signal("fake", 9)
        site.host.root("systemctl reset-failed open-webui; systemctl restart open-webui", 200)
        return "hers, as it stands in docs/security.md; status names her, and it is back afterwards"
    return f"never hers; {short(answer, 60)}"


def named_alike(site: Site) -> str:
    """eve's process has the name of an engine's; nobody takes it for one."""
    site.begin("alike", "exec bash -c 'exec -a VLLM::EngineCore sleep 600'")
    site.be_hot("mistral")
    answer = site.switch("qwen")
    expect(answer.code == 0, short(answer))
    expect("VLLM::EngineCore" in site.host.root("pgrep -u eve -af EngineCore"), "it was ended")
    return "switch rc 0, her process is left alone"


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
    Row("E1", "eve holds every lock that she can open: a switch works", locked_switch),
    Row("E1b", "the same: a deploy that starts a timer ends well", locked_deploy),
    Row("E1b-jobs", "no lock of ours opens for eve; switch.sh none works", locked_jobs),
    Row(
        "E1c",
        "the same: memory falls, the memory watch ends the engine and starts another",
        locked_memory_watch,
    ),
    Row(
        "E1d",
        "afterwards a start and a deploy heal, and diff finds nothing",
        healed_after_memory_kill,
    ),
    Row("E2", "eve reads no secret, journal or socket", reads),
    Row("E2-search", "no secret and no key in what eve can read, command lines too", needles),
    row("E3", "eve may write nothing of ours", writes, "eve"),
    Row("E3b", "nothing of ours is writable for everybody", modes),
    Row("E4", "eve stops, kills, starts or limits nothing: systemd, D-Bus, polkit, cgroups", units),
    row(
        "E5",
        "eve at qwen's port: refused and named, nothing stopped",
        port,
        "127.0.0.1",
        30001,
        "qwen",
    ),
    row(
        "E5b",
        "eve at tiny's port, whose answers are recorded: the same",
        port,
        "127.0.0.1",
        8000,
        "tiny",
    ),
    Row(
        "E5c",
        "the record of answers is as it was (asked by E5b); a diff has nothing",
        heal_by_deploy,
    ),
    Row("E6", "olga: words, flags and variables of sudo beyond the rule are refused", operator),
    Row(
        "E6-environment",
        "olga: nothing of hers runs as root by way of the environment",
        operator_environment,
    ),
    Row("E6-links", "olga: no link, file or queue in our folders", links),
    row(
        "E8",
        "eve waits for the gateway's port while it restarts: never hers, or told",
        gateway_port,
        "127.0.0.1",
    ),
    Row(
        "L1", "eve holds every lock: commands of the control machine and keys work", locked_control
    ),
    Row("L2", "no name of ours in common folders that eve could have first", predictable),
    Row("L3", "eve speaks to systemd's notify socket: ignored", notify),
    Row("L4", "eve's process has an engine's name: not taken for one, not ended", named_alike),
    row("L5", "olga may write nothing of ours", writes, "olga"),
    row(
        "P1",
        "eve at all addresses of qwen's port: refused and named",
        port,
        "0.0.0.0",
        30001,
        "qwen",
    ),
    row("P2", "eve at all addresses of IPv6: the same", port, "::", 30001, "qwen"),
    row("P3", "eve at ::1 alone: harmless or refused", port, "::1", 30001, "qwen", "harmless"),
    row(
        "P4",
        "eve at the port of the engine behind a listener",
        port,
        "127.0.0.1",
        31000,
        "mistral",
        "harmless",
    ),
    Row("P5", "eve waits for the port of the hot engine: refused and named", port_between),
    Row(
        "P6",
        "eve takes the port of an engine that died: status names her, she is asked nothing",
        port_of_ended_engine,
    ),
    row(
        "P7",
        "eve waits for the gateway's port at all addresses: never hers, or told",
        gateway_port,
        "0.0.0.0",
    ),
    Row(
        "P8", "eve waits for Open WebUI's port: status names her, and no start is hers", webui_port
    ),
)
