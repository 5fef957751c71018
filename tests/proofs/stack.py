"""What the tests on hosts work with: a lab of their own, its hosts, and deploys to it."""

from __future__ import annotations

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

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


def until(condition: Callable[[], T], what: str, limit_s: float = 400.0, pause_s: float = 2.0) -> T:
    """The first true answer of `condition`; fails naming `what` when none comes in time.

    Most conditions start a program on a host, `status` for 0.4 s of processor time
    (2026-11-27): who
    waits for long asks less often, at most `pause_s` apart.
    """
    began = time.monotonic()
    while not (answer := condition()):
        waited = time.monotonic() - began
        assert waited < limit_s, f"not within {limit_s:.0f} s: {what}"
        time.sleep(min(0.1 + waited / 20, pause_s))
    return answer


@dataclass(frozen=True)
class Answer:
    """What a command on a host said."""

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
        done = connection.run_on(connection.load(self.lab), self.name, [command], limit_s)
        return Answer(done.returncode, done.stdout, done.stderr)

    def begin(self, command: str) -> subprocess.Popen[str]:
        """An operator's own connection that runs shell text: to watch, to kill, or two at once."""
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
        """Run shell text as root at the console, whatever its end."""
        return self._at_console(["sh", "-c", command], limit_s)

    def _at_console(self, argv: Sequence[str], limit_s: float = SSH_LIMIT_S) -> Answer:
        """Run a program as root without a login.

        A login costs 0.13 s of processor time, this 0.01 (2026-11-27, two hosts at rest).
        """
        lab = open_lab(self.lab)
        group = cgroup.mounted()["v2"] / lab.namespace / "hosts" / self.name
        if (init := cgroup.guest_init(group)) is None:
            return Answer(255, "", f"{self.name} is off")
        spaces = [f"--{kind}" for kind in _NAMESPACES]
        environment = ["env", "-i", f"PATH={_ROOTS_PATH}", "HOME=/root", "LANG=C.UTF-8"]
        done = subprocess.run(
            ["nsenter", f"--target={init}", *spaces, *environment, *argv],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    def switch(self, *words: str) -> Answer:
        """`switch.sh WORDS` as the operator types it."""
        return self.run(shlex.join([SWITCH, *words]))

    def on_a_phone(self, *words: str) -> list[str]:
        """What `switch.sh WORDS` prints on a terminal of forty columns, without bold.

        `script` gives the terminal; it shows its own end of input as ^@.
        """
        command = f"stty cols 40; /data/scripts/llm/switch.sh {shlex.join(words)}"
        shown = self.run(f"script -qec {shlex.quote(command)} /dev/null")
        assert shown.code == 0, shown.text
        plain = re.sub(r"\x1b\[\d*m|\0|\^@", "", shown.out)
        return [line.rstrip() for line in plain.splitlines()]

    def status(self) -> dict[str, Any]:
        """`switch.sh status --json`."""
        operator = ["setpriv", f"--reuid={SSH_USER}", f"--regid={SSH_USER}", "--init-groups"]
        answer = self._at_console([*operator, SWITCH, "status", "--json"])
        assert answer.code == 0, answer.text
        found: dict[str, Any] = json.loads(answer.out)
        return found

    def show(self, unit: str, name: str) -> str:
        """One property of a unit, from systemd itself."""
        return self.root(f"systemctl show -p {name} --value {shlex.quote(unit)}").strip()

    def active(self) -> set[str]:
        """Model units that systemd calls active or starting."""
        names = "vllm.service vllm-qwen36.service 'sglang-mistral4*.service'"
        listed = self.root(
            f"systemctl list-units --plain --no-legend --state=active,activating {names}"
        )
        return {line.split()[0] for line in listed.splitlines()}

    def logs(self, words: str, *matches: str) -> str:
        """The journal's lines of some matches (`-u UNIT`), once `words` are among them.

        What a process said reaches the journal after others have seen its end.
        """
        asked = f"journalctl -q -b --no-pager -o cat {' '.join(matches)}"
        said = [""]

        def shown() -> str:
            said[0] = self.root(asked)
            return said[0] if words in said[0] else ""

        try:
            return until(shown, f"{self.name}: {words!r} in `{asked}`", limit_s=60.0)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{said[0]}") from None

    def get(self, url: str) -> Any:
        """JSON that a port of the host's loopback answers."""
        return json.loads(self.root(f"curl -fsS --max-time 20 {shlex.quote(url)}"))

    def complete(self, port: int, model: str) -> dict[str, Any]:
        """One chat completion, asked for with curl on the host."""
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
        found: dict[str, Any] = json.loads(answer.out)
        return found

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
        held = f"ss -tnH state established 'sport = :{port}' | wc -l"
        until(lambda: int(self.root(held)) >= count, f"{self.name}: {count} streams are open")


@dataclass(frozen=True)
class Deployed:
    """A deploy that has ended."""

    code: int
    output: str

    @property
    def changed(self) -> set[str]:
        """Operations that changed something or failed, or in a dry run would change something."""
        table = re.split(r"^--> (?:Results|Detected changes):$", self.output, flags=re.MULTILINE)
        found = set()
        for line in table[-1].partition("\n\n")[0].splitlines():
            name, *counts = re.split(r" {2,}", line.strip())
            # Results: hosts, success, error, no change. Dry: change, conditional change.
            told = counts[1:3] if len(counts) == 4 else counts
            if "|" in name and any(count.strip() != "-" for count in told):
                found.add(name)
        return found

    @property
    def closing(self) -> str:
        """What stands after pyinfra's own results."""
        return self.output.rpartition("--> Disconnecting")[2].partition("\n")[2]


_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Deploy:
    """A deploy that runs: its output can be awaited, and it can be killed."""

    def __init__(self, argv: list[str], environment: Mapping[str, str]) -> None:
        self._text: list[str] = []
        self._last = ""
        reading, writing = os.pipe()
        self._said = os.fdopen(reading, errors="replace")
        try:
            environment = {**os.environ, **environment}
            self._process = forked_pyinfra.start(argv, REPOSITORY, environment, writing)
        finally:
            os.close(writing)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._said:
            self._text.append(_COLOURS.sub("", line))
            if self._last and re.search(self._last, self._text[-1]):
                self._process.kill()

    @property
    def output(self) -> str:
        """Everything said so far, without colours."""
        return "".join(self._text)

    @property
    def pid(self) -> int:
        """The control process."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def says(self, pattern: str, limit_s: float = DEPLOY_LIMIT_S) -> None:
        """Wait until a line of the output matches."""

        def seen() -> bool:
            over = self._process.poll() is not None and not self._reader.is_alive()
            if re.search(pattern, self.output, re.MULTILINE):
                return True
            assert not over, f"the deploy ended without {pattern!r}:\n{self.output[-6000:]}"
            return False

        until(seen, f"the deploy says {pattern!r}", limit_s, pause_s=0.1)

    def kill(self) -> str:
        """End the control process without warning; what it had said."""
        self._process.kill()
        self._process.wait()
        self._reader.join(10)
        return self.output

    def kill_at(self, pattern: str) -> None:
        """End the control process without warning as soon as a line matches."""
        self._last = pattern
        done = self.end()
        assert done.code == -signal.SIGKILL, f"it never said {pattern!r}: {done.output[-6000:]}"

    def end(self, limit_s: float = DEPLOY_LIMIT_S) -> Deployed:
        """Wait for its own end."""
        try:
            code = self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the deploy hangs:\n{self.kill()[-6000:]}") from None
        self._reader.join(10)
        return Deployed(code, self.output)


@contextmanager
def command_lines() -> Iterator[set[str]]:
    """Collect the command lines of all processes of this machine, the hosts' among them."""
    seen: set[str] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    line = (process / "cmdline").read_bytes()
                except OSError:
                    continue
                seen.add(line.replace(b"\0", b" ").decode("utf-8", "replace"))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def forget_leases(host: Host) -> None:
    """End at once what a killed deploy leaves for half an hour: the server of the copies."""
    peers = "/run/lockstep/peers"
    host.root(f"systemctl stop lockstep-peer.service; rm -f {peers}/*.json {peers}/offers/*.json")


class Stack:
    """A lab and the deploys to it.

    `outliving`: the environment of what may outlive whoever works with it; None: the same.
    """

    def __init__(self, name: str, folder: Path, outliving: Mapping[str, str] | None = None) -> None:
        self.name = name
        self._outliving = outliving
        self.folder = folder
        self.lock = open_lab(name).state / "lab.lock.yaml"
        self.environment = {"LOCKSTEP_LAB": name, "COLUMNS": "80"}
        self.one, self.two = Host(name, "spark1"), Host(name, "spark2")
        self.hosts: tuple[Host, ...] = (self.one, self.two)
        self._deploys: list[Deploy] = []
        self._faulty: set[str] = set()

    def lab(self, *words: str) -> str:
        """`lockstep lab WORDS`, which must succeed."""
        argv = [str(BIN / "lockstep"), "lab", words[0], "--name", self.name, *words[1:]]
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            cwd=REPOSITORY,
            env=self._outliving,
            check=False,
        )
        assert done.returncode == 0, f"{shlex.join(argv)}\n{done.stdout}{done.stderr}"
        return done.stdout

    def lockstep(self, command: str, *words: str, inventory: Path = INVENTORY) -> Answer:
        """`lockstep COMMAND WORDS -i INVENTORY`, whatever its end."""
        done = self._run([str(BIN / "lockstep"), *command.split(), *words, "-i", str(inventory)])
        return Answer(done.returncode, done.stdout, done.stderr)

    def _run(self, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **self.environment}
        return subprocess.run(
            argv, capture_output=True, text=True, cwd=REPOSITORY, env=environment, check=False
        )

    def requests(self, service: str) -> Iterator[Request]:
        """What a server of the lab has answered so far."""
        return requests(open_lab(self.name).state, service)

    def plant(self, service: str, *faults: dict[str, Any]) -> None:
        """Replace the faults of a server of the lab; none without `faults`.

        Asked for from within the lab's network, by a host.
        """
        self._faulty = {*self._faulty, service} if faults else self._faulty - {service}
        base = {"web": 3141, "hub": 8090}[service]
        data = shlex.quote(json.dumps(faults))
        self.one.root(f"curl -fsS -d {data} http://10.77.0.1:{base}/-/faults")

    def start(self, *options: str, inventory: Path = INVENTORY, **environment: str) -> Deploy:
        """Begin `pyinfra OPTIONS INVENTORY deploy.py`; more variables by name."""
        argv = [*(options or ("-y",)), str(inventory), "deploy.py"]
        deploy = Deploy(argv, {**self.environment, **environment})
        self._deploys.append(deploy)
        return deploy

    def typed_deploy(self, *options: str, inventory: Path = INVENTORY) -> Deployed:
        """A whole deploy, begun as a user types it: in a process of its own."""
        done = subprocess.run(
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
        return Deployed(done.returncode, _COLOURS.sub("", done.stdout))

    def reap(self) -> None:
        """End what a test that failed, or was interrupted, left running."""
        while self._deploys:
            self._deploys.pop().kill()

    def mend(self) -> None:
        """`reap`, and the servers of the lab answer as they should."""
        self.reap()
        for service in sorted(self._faulty):
            self.plant(service)

    def deploy(self, *options: str, inventory: Path = INVENTORY, **environment: str) -> Deployed:
        """A whole deploy, whatever its end."""
        return self.start(*options, inventory=inventory, **environment).end()

    def good_deploy(self, *options: str, inventory: Path = INVENTORY) -> Deployed:
        """A whole deploy that must end well."""
        done = self.deploy(*options, inventory=inventory)
        assert done.code == 0, done.output[-8000:]
        return done

    def diff(self, *options: str, inventory: Path = INVENTORY) -> subprocess.CompletedProcess[str]:
        """`lockstep diff OPTIONS`, whatever it says."""
        return self._run([str(BIN / "lockstep"), "diff", "-i", str(inventory), *options])

    def plan(self, inventory: Path = INVENTORY) -> str:
        """`lockstep plan`: what it prints."""
        return self.lockstep("plan", inventory=inventory).out

    def bench(
        self, file: Path, *words: str, host: str = "spark1", inventory: Path = INVENTORY
    ) -> tuple[int, dict[str, Any], str]:
        """`lockstep bench HOST`, kept in a file: exit code, suites by name, what was printed.

        The hosts share this machine's processors, so how busy these are says nothing of a host.
        """
        argv = [str(BIN / "lockstep"), "bench", host, "-i", str(inventory), "--quick"]
        argv += ["--repeat", "3"]
        done = self._run([*argv, "--waive", "quiet", "-o", str(file), *words])
        said = done.stdout + done.stderr
        suites = json.loads(file.read_text())["suites"] if file.exists() else []
        return done.returncode, {suite["name"]: suite for suite in suites}, said

    def inventory(self, name: str, original: Path = INVENTORY, **changes: Any) -> Path:
        """A copy of an inventory of the lab with other data; mappings are merged, None removes.

        Args:
            name: Folder for it: each copy needs one, for the file's name is the group's.
            original: What is copied.
            changes: Top-level key → value; a key of the form ``spark1__KEY`` is for one host, and
                ``spark1=None`` leaves a host out.
        """
        path = self.folder / name / original.name
        path.parent.mkdir(exist_ok=True)
        text = _COPY.format(original=str(original), group=original.stem, changes=changes)
        path.write_text(text)
        return path

    def variants(self, inventory: Path = INVENTORY) -> dict[str, dict[str, Any]]:
        """Host → target → what recipes, pins and the engines' answers ask for."""
        answers = {host.name: engine_answers(host) for host in self.hosts}
        program = Path(__file__).with_name("expected.py")
        done = subprocess.run(
            [sys.executable, str(program), str(inventory), str(self.lock), json.dumps(answers)],
            capture_output=True,
            text=True,
            cwd=REPOSITORY,
            env={**os.environ, **self.environment},
            check=True,
        )
        found: dict[str, dict[str, Any]] = json.loads(done.stdout)
        return found


@contextmanager
def lent(kept: str | None, name: str) -> Iterator[Stack]:
    """A lab for a program: `kept`, which is up and stays, or one of its own, gone afterwards.

    The hosts are those that the lab has.
    """
    with tempfile.TemporaryDirectory() as folder:
        stack = Stack(kept or name, Path(folder))
        try:
            if not kept:
                stack.lab("up")
            names = [host.name for host in connection.load(stack.name).hosts]
            stack.hosts = tuple(Host(stack.name, name) for name in names)
            yield stack
        finally:
            stack.reap()
            if not kept:
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
    """Every file that a deploy may write, with the time of its last change, every service's last
    start, and every container.

    What engines and uv cache is left out, and of installed packages only the folders are looked
    at: 80,000 files cost three seconds of processor time (2026-11-28).
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


def engine_answers(host: Host) -> dict[str, dict[str, Any]]:
    """Digest of an image, or "venv" → what its engine said on the host."""
    listed = host.root(
        "cat /opt/lockstep/engines/current/check.json; echo; echo ---;"
        "cd /var/cache/lockstep/images && for f in *.json; do echo $f; cat $f; "
        "echo; echo ---; done"
    )
    venv, *images = listed.split("\n---\n")
    found: dict[str, dict[str, Any]] = {"venv": json.loads(venv)}
    for entry in filter(str.strip, images):
        name, _, text = entry.strip().partition("\n")
        digest = name.removesuffix(".json").replace("-", ":", 1)
        found[digest] = json.loads(text)
    return found
