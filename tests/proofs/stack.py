"""A lab of its own for the tests on hosts, its hosts, and deploys to it."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from lab import control
from lab.core.state import open_lab
from lab.host import cgroup, connection
from lab.host.connection import SSH_USER
from lab.host.network import NAMESPACES
from lab.http.access_log import Request, requests

REPOSITORY = Path(__file__).resolve().parents[2]
# A program of this folder has no other on its path.
sys.path.append(str(REPOSITORY / "tests/helpers"))
import forked_pyinfra  # noqa: E402

BIN = Path(sys.executable).parent
INVENTORY = REPOSITORY / "inventories" / "lab.py"
SWITCH = "/data/scripts/llm/switch.sh"
DEPLOY_LOCK = "/run/lockstep/deploy.lock"
#: Memory of a host that has no engine.
USUAL_GIB = 118.0
#: Longest whole deploy of two wiped hosts, seconds; only bounds a hang.
DEPLOY_LIMIT_S = 1800.0
#: Longest command on a host, a start of a real engine on a busy machine; only bounds a hang.
SSH_LIMIT_S = 1500.0
#: A host's own, its clock among them: without it each process there seems to have begun at another
#: time than it says.
_NAMESPACES = ("mount", "uts", "ipc", "net", "pid", "cgroup", "time")
#: What `sudo` and a root shell of Ubuntu have.
_ROOTS_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

T = TypeVar("T")


def until(
    condition: Callable[[], T], description: str, limit_s: float = 400.0, pause_s: float = 2.0
) -> T:
    """Wait for the first true value of `condition`; fail naming `description` if none comes.

    Most conditions start a program on a host, `status` for 0.4 s of processor time (2026-11-27).
    A long wait asks less often, at most `pause_s` apart.
    """
    began = time.monotonic()
    while not (answer := condition()):
        elapsed_s = time.monotonic() - began
        assert elapsed_s < limit_s, f"not within {limit_s:.0f} s: {description}"
        time.sleep(min(0.1 + elapsed_s / 10, pause_s))
    return answer


@dataclass(frozen=True)
class Answer:
    """The outcome of a command on a host."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """Both streams, for messages and searches."""
        return self.out + self.err


@dataclass(frozen=True)
class Host:
    """One stand-in Spark, reached as its operator does: over SSH."""

    lab: str
    name: str

    def run(self, command: str, limit_s: float = SSH_LIMIT_S) -> Answer:
        """Run shell text as the operator."""
        result = connection.run_on(connection.load(self.lab), self.name, [command], limit_s)
        return Answer(result.returncode, result.stdout, result.stderr)

    def begin(self, command: str) -> subprocess.Popen[str]:
        """Begin shell text on the operator's own connection: to watch, to kill, or two at once."""
        description = connection.load(self.lab)
        argv = connection.ssh_command(description, self.name, [command])
        return subprocess.Popen(
            ["nsenter", f"--net={NAMESPACES / description.namespace}", *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )

    def root(self, command: str, limit_s: float = SSH_LIMIT_S) -> str:
        """Run shell text as root at the console, demand that it succeeds, and give its output."""
        answer = self.look(command, limit_s)
        assert answer.code == 0, f"{self.name}: {command}: {answer.code}\n{answer.text}"
        return answer.out

    def look(self, command: str, limit_s: float = SSH_LIMIT_S) -> Answer:
        """Run shell text as root at the console, with any exit code.

        A login costs 0.13 s of processor time, this 0.01 (2026-11-27, two hosts at rest).
        """
        lab = open_lab(self.lab)
        group = cgroup.mounted_hierarchies()["v2"] / lab.namespace / "hosts" / self.name
        if (init := cgroup.guest_init(group)) is None:
            return Answer(255, "", f"{self.name} is off")
        spaces = [f"--{kind}" for kind in _NAMESPACES]
        environment = ["env", "-i", f"PATH={_ROOTS_PATH}", "HOME=/root", "LANG=C.UTF-8"]
        result = subprocess.run(
            ["nsenter", f"--target={init}", *spaces, *environment, "sh", "-c", command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
        return Answer(result.returncode, result.stdout, result.stderr)

    @property
    def address(self) -> str:
        """The address at which other hosts reach it."""
        return self.root("hostname -I").split()[0]

    def switch(self, *words: str) -> Answer:
        """Run `switch.sh WORDS` as the operator types it."""
        return self.run(shlex.join([SWITCH, *words]))

    def status(self) -> dict[str, Any]:
        """The document of `switch.sh status --json`."""
        operator = f"setpriv --reuid={SSH_USER} --regid={SSH_USER} --init-groups"
        return json.loads(self.root(f"{operator} {SWITCH} status --json"))

    def show(self, unit: str, name: str) -> str:
        """One property of a unit, from systemd itself."""
        return self.root(f"systemctl show -p {name} --value {shlex.quote(unit)}").strip()

    def active(self) -> set[str]:
        """Model units that are active or starting in systemd."""
        names = "vllm.service vllm-qwen36.service 'sglang-mistral4*.service'"
        output = self.root(
            f"systemctl list-units --plain --no-legend --state=active,activating {names}"
        )
        return {line.split()[0] for line in output.splitlines()}

    def logs(self, words: str, *matches: str) -> str:
        """Wait for `words` in the journal; returns the journal's lines of some matches (`-u UNIT`).

        A process's output reaches the journal after others have seen its end.
        """
        command = f"journalctl -q -b --no-pager -o cat {' '.join(matches)}"
        output = [""]

        def matching_output() -> str:
            output[0] = self.root(command)
            return output[0] if words in output[0] else ""

        try:
            return until(matching_output, f"{self.name}: {words!r} in `{command}`", limit_s=60.0)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{output[0]}") from None

    def places_with(self, secret: str, *finds: str) -> list[str]:
        """The places that hold a line of a file: units, journal, processes, files (`find FIND`).

        The host searches itself, with what the file holds: it is in no argument.
        """
        places = (
            "systemctl show '*.service'; systemctl cat '*.service'",
            "journalctl --no-pager --all -o export",
            "ps -efww",
            *(f"find {words} -type f -size -4M -exec cat {{}} +" for words in finds),
        )
        search = f"2>/dev/null | grep -a -c -F -f {secret} || true"
        return [place for place in places if self.root(f"{{ {place}; }} {search}").strip() != "0"]

    def await_end_of_deploy(self, limit_s: float = 150.0) -> None:
        """Wait until neither a deploy nor its way back holds this host."""
        until(
            lambda: self.look(f"flock --nonblock {DEPLOY_LOCK} true").code == 0,
            f"{self.name}: it has ended what the deploy began",
            limit_s,
        )

    def get(self, url: str) -> Any:
        """The JSON that a port of the host's loopback answers."""
        return json.loads(self.root(f"curl -fsS --max-time 20 {shlex.quote(url)}"))

    def complete(self, port: int, model: str) -> dict[str, Any]:
        """Ask for one chat completion with curl on the host."""
        body = {
            "model": model,
            "messages": [{"role": "user", "content": "Say something."}],
            "max_tokens": 8,
        }
        url = f"http://127.0.0.1:{port}/v1/chat/completions"
        data = shlex.quote(json.dumps(body))
        answer = self.look(
            f"curl -fsS --max-time 120 -H 'Content-Type: application/json' -d {data} {url}"
        )
        assert answer.code == 0, answer.text
        return json.loads(answer.out)

    def hold_streams(self, port: int, model: str, count: int) -> None:
        """Clients of an engine that go on asking, one stream each, until it refuses them."""
        body = {
            "model": model,
            "messages": [{"role": "user", "content": "x"}],
            "stream": True,
            "ignore_eos": True,
            "max_tokens": 900,
        }
        ask = f"curl -sfNo /dev/null -H 'Content-Type: application/json' -d '{json.dumps(body)}' "
        ask += f"http://127.0.0.1:{port}/v1/chat/completions"
        # 7 is a refused connection, 22 an error of HTTP, as the gateway answers for an engine that
        # has gone: a stream that breaks off otherwise is asked for again.
        on = f"until {ask}; [ $? = 7 -o $? = 22 ]; do :; done"
        clients = f"for each in $(seq {count}); do {on} & done; wait"
        self.root(f"systemd-run --quiet --collect sh -c {shlex.quote(clients)}")
        count_command = f"ss -tnH state established 'sport = :{port}' | wc -l"
        until(
            lambda: int(self.root(count_command)) >= count, f"{self.name}: {count} streams are open"
        )


@dataclass(frozen=True)
class DeployResult:
    """A deploy that has ended."""

    code: int
    output: str

    @property
    def changed_operations(self) -> set[str]:
        """Operations that changed something or failed, or in a dry run would change something."""
        table = re.split(r"^--> (?:Results|Detected changes):$", self.output, flags=re.MULTILINE)
        operations = set()
        for line in table[-1].partition("\n\n")[0].splitlines():
            name, *counts = re.split(r" {2,}", line.strip())
            # Results: hosts, success, error, no change. Dry: change, conditional change.
            change_counts = counts[1:3] if len(counts) == 4 else counts
            if "|" in name and any(count.strip() != "-" for count in change_counts):
                operations.add(name)
        return operations

    @property
    def closing(self) -> str:
        """The output after pyinfra's own results."""
        return self.output.rpartition("--> Disconnecting")[2].partition("\n")[2]


_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Deploy:
    """A deploy that runs: a caller can wait for its output, and kill it."""

    def __init__(self, argv: list[str], environment: Mapping[str, str]) -> None:
        self._text: list[str] = []
        self._last = ""
        reading, writing = os.pipe()
        self._output_stream = os.fdopen(reading, errors="replace")
        try:
            environment = {**os.environ, **environment}
            self._process = forked_pyinfra.start(argv, REPOSITORY, environment, writing)
        finally:
            os.close(writing)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._output_stream:
            self._text.append(_COLOURS.sub("", line))
            if self._last and re.search(self._last, self._text[-1]):
                self._process.kill()

    @property
    def output(self) -> str:
        """The whole output so far, without colours."""
        return "".join(self._text)

    @property
    def pid(self) -> int:
        """The control process."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Tell whether the deploy still runs."""
        return self._process.poll() is None

    def says(self, pattern: str, limit_s: float = DEPLOY_LIMIT_S) -> None:
        """Wait until a line of the output matches."""

        def is_matched() -> bool:
            over = self._process.poll() is not None and not self._reader.is_alive()
            if re.search(pattern, self.output, re.MULTILINE):
                return True
            assert not over, f"the deploy ended without {pattern!r}:\n{self.output[-6000:]}"
            return False

        until(is_matched, f"the deploy says {pattern!r}", limit_s, pause_s=0.1)

    def kill(self) -> str:
        """Kill the control process without warning; returns its output."""
        self._process.kill()
        self._process.wait()
        self._reader.join(10)
        return self.output

    def kill_at(self, pattern: str) -> None:
        """Kill the control process without warning as soon as a line matches."""
        self._last = pattern
        result = self.end()
        assert result.code == -signal.SIGKILL, f"it never said {pattern!r}: {result.output[-6000:]}"

    def end(self, limit_s: float = DEPLOY_LIMIT_S) -> DeployResult:
        """Wait until the deploy ends by itself."""
        try:
            code = self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the deploy hangs:\n{self.kill()[-6000:]}") from None
        self._reader.join(10)
        return DeployResult(code, self.output)


@contextmanager
def command_lines() -> Iterator[set[str]]:
    """Collect the command lines of all processes of this machine, the hosts' included."""
    lines: set[str] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    line = (process / "cmdline").read_bytes()
                except OSError:
                    continue
                lines.add(line.replace(b"\0", b" ").decode("utf-8", "replace"))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield lines
    finally:
        over.set()
        thread.join()


class Follower:
    """Hands each line of a program to `take` in a thread of its own, begun again where it ended.

    `line_event` is set by each line.
    """

    def __init__(
        self, begin: Callable[[], subprocess.Popen[str]], take: Callable[[str], object]
    ) -> None:
        self._begin, self._take = begin, take
        self._over = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self.line_event = threading.Event()

    def _follow(self) -> None:
        while not self._over.is_set():
            self._process = self._begin()
            assert self._process.stdout is not None
            for line in self._process.stdout:
                self._take(line)
                self.line_event.set()
            self._process.wait()
            self._over.wait(0.5)

    def __enter__(self) -> Self:
        self._thread.start()
        until(self.line_event.is_set, "the program that is followed says something")
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._process:
            self._process.kill()
        self._thread.join(10)


def forget_leases(host: Host) -> None:
    """End at once the server of copies, which a killed deploy leaves for half an hour."""
    peers = "/run/lockstep/peers"
    host.root(f"systemctl stop lockstep-peer.service; rm -f {peers}/*.json {peers}/offers/*.json")


class Stack:
    """A lab and the deploys to it.

    `outliving`: the environment of processes that may outlive the caller; None: this one's.
    """

    def __init__(self, name: str, folder: Path, outliving: Mapping[str, str] | None = None) -> None:
        self.name = name
        self._outliving = outliving
        self.folder = folder
        self.lock = open_lab(name).state / "lab.lock.yaml"
        self.environment = {"LOCKSTEP_LAB": name, "COLUMNS": "80"}
        self.spark1, self.two = Host(name, "spark1"), Host(name, "spark2")
        self.hosts: tuple[Host, ...] = (self.spark1, self.two)
        self._deploys: list[Deploy] = []
        self._faulty: set[str] = set()

    def lab(self, *words: str) -> str:
        """Run `lockstep lab WORDS`, which must succeed."""
        argv = [str(BIN / "lockstep"), "lab", words[0], "--name", self.name, *words[1:]]
        result = subprocess.run(
            argv, capture_output=True, text=True, cwd=REPOSITORY, env=self._outliving, check=False
        )
        assert result.returncode == 0, f"{shlex.join(argv)}\n{result.stdout}{result.stderr}"
        return result.stdout

    def memory(self, host: Host, gib: float = USUAL_GIB, rate: float | None = None) -> None:
        """Set the available memory of a host, at once or at so many GiB a second."""
        control.ask(open_lab(self.name), "memory", host=host.name, available=gib, rate=rate)

    def lockstep(self, command: str, *words: str, inventory: Path = INVENTORY) -> Answer:
        """Run `lockstep COMMAND WORDS -i INVENTORY`, with any exit code."""
        argv = [str(BIN / "lockstep"), *command.split(), *words, "-i", str(inventory)]
        environment = {**os.environ, **self.environment}
        result = subprocess.run(
            argv, capture_output=True, text=True, cwd=REPOSITORY, env=environment, check=False
        )
        return Answer(result.returncode, result.stdout, result.stderr)

    def requests(self, service: str) -> Iterator[Request]:
        """The requests that a server of the lab has answered so far."""
        return requests(open_lab(self.name).state, service)

    def plant(self, service: str, *faults: dict[str, Any]) -> None:
        """Replace the faults of a server of the lab; none without `faults`.

        A host sends them from within the lab's network.
        """
        self._faulty = {*self._faulty, service} if faults else self._faulty - {service}
        base = {"web": 3141, "hub": 8090}[service]
        data = shlex.quote(json.dumps(faults))
        self.spark1.root(f"curl -fsS -d {data} http://10.77.0.1:{base}/-/faults")

    def start(self, *options: str, inventory: Path = INVENTORY, **environment: str) -> Deploy:
        """Begin `pyinfra OPTIONS INVENTORY deploy.py`; more variables by name."""
        argv = [*(options or ("-y",)), str(inventory), "deploy.py"]
        deploy = Deploy(argv, {**self.environment, **environment})
        self._deploys.append(deploy)
        return deploy

    def typed_deploy(self, *options: str, inventory: Path = INVENTORY) -> DeployResult:
        """Begin a whole deploy as a user types it: in a process of its own."""
        result = subprocess.run(
            [str(BIN / "pyinfra"), *(options or ("-y",)), str(inventory), "deploy.py"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd=REPOSITORY,
            env={**os.environ, **self.environment},
            timeout=DEPLOY_LIMIT_S,
            check=False,
        )
        return DeployResult(result.returncode, _COLOURS.sub("", result.stdout))

    def reap(self) -> None:
        """End the processes that a failed or interrupted test left running."""
        while self._deploys:
            self._deploys.pop().kill()

    def mend(self) -> None:
        """Call `reap`, and make the servers of the lab answer as they should."""
        self.reap()
        for service in sorted(self._faulty):
            self.plant(service)

    def deploy(
        self, *options: str, inventory: Path = INVENTORY, **environment: str
    ) -> DeployResult:
        """Run a whole deploy, with any exit code."""
        return self.start(*options, inventory=inventory, **environment).end()

    def good_deploy(self, *options: str, inventory: Path = INVENTORY) -> DeployResult:
        """Run a whole deploy that must end well."""
        result = self.deploy(*options, inventory=inventory)
        assert result.code == 0, result.output[-8000:]
        return result

    def diff(self, *options: str, inventory: Path = INVENTORY) -> Answer:
        """Run `lockstep diff OPTIONS`, with any result."""
        return self.lockstep("diff", *options, inventory=inventory)

    def inventory(self, name: str, original: Path = INVENTORY, **changes: Any) -> Path:
        """A copy of an inventory of the lab with other data; mappings are merged, None removes.

        Args:
            name: Folder for it: each copy needs one, for the file's name is the group's.
            original: The inventory to copy.
            changes: Top-level key → value; a key of the form ``spark1__KEY`` is for one host, and
                ``spark1=None`` leaves a host out.
        """
        path = self.folder / name / original.name
        path.parent.mkdir(exist_ok=True)
        text = _COPY.format(original=str(original), group=original.stem, changes=changes)
        path.write_text(text)
        return path

    def fabric_addresses(self) -> dict[str, Any]:
        """Data of `inventory`: each host's address is that of its fast link, too."""
        return {f"{host.name}__fabric_address": host.address for host in self.hosts}


@contextmanager
def lend_lab(existing_lab: str | None, name: str) -> Iterator[Stack]:
    """A lab for a program: `kept`, which is up and stays, or one of its own, gone afterwards.

    The lab's own hosts are used.
    """
    with tempfile.TemporaryDirectory() as folder:
        stack = Stack(existing_lab or name, Path(folder))
        try:
            if not existing_lab:
                stack.lab("up")
            names = [host.name for host in connection.load(stack.name).hosts]
            stack.hosts = tuple(Host(stack.name, name) for name in names)
            yield stack
        finally:
            stack.reap()
            if not existing_lab:
                stack.lab("down", "--delete")


_COPY = """\
import runpy
from lockstep.deploy.checked import checked

def merged(old, new):
    both = {{**old, **new}}
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(old.get(key), dict):
            both[key] = merged(old[key], value)
    return {{key: value for key, value in both.items() if value is not None}}

def of(host):
    mine = {{}}
    for key, value in {changes!r}.items():
        name, mark, rest = key.partition("__")
        if not mark:
            mine[key] = value
        elif name == host:
            mine[rest] = value
    return mine

_original, _ = runpy.run_path({original!r})[{group!r}]
{group} = checked(__file__, [(name, merged(data, of(name))) for name, data in _original
                            if {changes!r}.get(name, name)])
"""


def state(host: Host) -> set[str]:
    """The state of a host: every file that a deploy may write, services and containers.

    Files have the time of their last change, services the time of their last start. The caches of
    engines and uv are left out, and of installed packages only the folders are included: 80,000
    files cost three seconds of processor time (2026-11-28).
    """
    return set(host.root(_STATE).splitlines())


_STATE = (
    "find /etc /usr/local /data /opt/lockstep /var/lib/dpkg/status /var/lib/lockstep"
    " \\( -name __pycache__ -o -name uv-cache -o -path '*/site-packages/*' ! -type d \\) -prune"
    " -o -printf '%p %C@ %m %u %s\\n';"
    " systemctl list-units --plain --no-legend --type=service --state=active lockstep-* vllm*"
    " sglang* open-webui* docker* ssh* | while read -r unit rest; do"
    ' systemctl show -p Id,InvocationID "$unit" | paste -s; done;'
    " docker ps -a --format '{{.ID}} {{.Image}}' 2>&1 || true"
)


def a_key(stack: Stack, path: Path, name: str, *options: str) -> str:
    """A new key of a person on every host."""
    end_key(stack, path, name)
    answer = stack.lockstep("key add", name, *options, inventory=path)
    assert answer.code == 0, answer.text
    return answer.out.strip()


def end_key(stack: Stack, path: Path, name: str) -> None:
    """Revoke a person's key; does nothing without one."""
    stack.lockstep("key revoke", name, inventory=path)
