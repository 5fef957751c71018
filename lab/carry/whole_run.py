"""A whole run: from a wiped lab host to models that serve on this machine's GPU, and their faults.

usage: python3 whole_run.py [--parts FOLDER] [--out FOLDER] [--seconds S] [--again] [STEP ...]

Beside it are the parts of pack.sh, and vllm.tar.xz of benchmarks.cuda.parts. It needs only Python.
Without STEP it does all steps that have not been done here; OUT/whole_run.json says which have. So
a machine that is lent for some minutes at a time takes it in several calls. No step is begun that
usually takes longer than what is left of --seconds. Each step ends at its limit, and a step that
fails ends no other, except those that need it. OUT/whole_run.md is the page: a step is measured,
failed, or not measured. --again repeats the steps that are named.

`--here` takes the lab that LOCKSTEP_LAB names, which is up, with the programs of this checkout and
without a GPU: `--inventory inventories/lab.py --model tiny --second qwen`. So the program can be
tried without a GPU.

exit codes: 0 all that was begun is measured, 1 a step failed, 2 wrong use
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent
HOST = "spark1"
SWITCH = "/data/scripts/llm/switch.sh"
ENGINE = "$(pgrep -x VLLM::EngineCor || pgrep -f ^VLLM::EngineCore)"
VENV = "/opt/lockstep/engines/current/venv/bin/python"
ON_HOST = "sudo python3 /usr/local/lib/lockstep"
APPS = "nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv,noheader"
#: A file of the deploy's in which a line more does no harm.
DRIFTED = "/etc/logrotate.d/lockstep"
Figures = dict[str, Any]

#: Takes GIB of the GPU's memory by plain allocations and keeps them.
HOLD = """
import sys, time, torch
blocks = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(int(sys.argv[1]))]
torch.cuda.synchronize()
print("held", flush=True)
time.sleep(600)
"""
SITE = "import os, torch; print(os.path.dirname(torch.__path__[0]))"
VERSIONS = (
    "import platform, torch, vllm;"
    "print(platform.python_version(), torch.__version__, vllm.__version__)"
)
CARD = "nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap --format=csv,noheader"
#: An inventory that is another one with other data of one model.
CHANGED = """
import runpy
from lockstep.deploy.checked import checked

_hosts, _ = runpy.run_path({original!r})[{group!r}]
{group} = checked(__file__, [
    (name, {{**data, "models": {{**data["models"], {model!r}:
        {{**data["models"][{model!r}], "overrides": {overrides!r}}}}}}})
    for name, data in _hosts
])
"""
#: Puts the trained model into the hub of the lab whose state is a folder.
PUBLISH = """
import sys
from pathlib import Path
from lab.hub import hub_store
folder, state = map(Path, sys.argv[1:])
files = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
root = state / "services/hub/content"
root.mkdir(parents=True, exist_ok=True)
print(hub_store.commit(root, "lab/trained-qwen3", files, "Trained", "2026-11-29T12:00:00.000Z",
                       licence="apache-2.0"))
"""


class StepFailure(Exception):
    """A step whose outcome is not the expected one; `figures` are what it measured before."""

    def __init__(self, reason: str, figures: Mapping[str, Any] | None = None) -> None:
        super().__init__(reason)
        self.figures = dict(figures or {})


class Run:
    """The lab, and how to reach it from here."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.parts: Path = options.parts
        self.lab = Path(os.environ.get("LAB", "/lockstep-lab"))
        self.out: Path = options.out
        self.name = ""
        self.ends = 0.0

    def command(self, words: Sequence[str]) -> list[str]:
        """The words of a command of the operator's."""
        if self.options.here:
            return list(words)
        return ["sh", str(self.parts / "boot.sh"), "do", *words]

    def do(self, *words: str, ok: Sequence[int] = (0,), text: str = "") -> str:
        """Run a command of the operator's until the step's limit; its output, also in OUT.

        Raises:
            StepFailure: it ended with another code, or did not end.
        """
        return self._run(self.command(words), ok, text)

    def on_host(self, command: str, ok: Sequence[int] = (0,), text: str = "") -> str:
        """Run shell text on the host as the operator."""
        return self.do("lockstep", "lab", "ssh", HOST, "--", command, ok=ok, text=text)

    def begin(self, command: str, text: str = "") -> subprocess.Popen[str]:
        """Begin shell text on the host; `end` gives its output."""
        process = subprocess.Popen(
            self.command(["lockstep", "lab", "ssh", HOST, "--", command]),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", start_new_session=True, **self._place(),
        )  # fmt: skip
        assert process.stdin
        process.stdin.write(text)
        process.stdin.close()
        process.stdin = None
        return process

    def end(self, process: subprocess.Popen[str]) -> str:
        """Wait until a begun command ends, at most until the step's limit; its output."""
        try:
            output = process.communicate(timeout=max(1, self.ends - time.monotonic()))[0]
        except subprocess.TimeoutExpired:
            kill(process)
            output = process.communicate()[0]
        self._keep(str(process.args)[:200], process.returncode, output)
        return output

    def _run(self, argv: Sequence[str], ok: Sequence[int], text: str = "") -> str:
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", start_new_session=True, **self._place(),
        )  # fmt: skip
        try:
            output = process.communicate(text, timeout=max(1, self.ends - time.monotonic()))[0]
        except subprocess.TimeoutExpired:
            kill(process)
            output = process.communicate()[0]
            self._keep(shlex.join(argv)[:200], "cut off", output)
            raise StepFailure(f"not within the step's limit: {shlex.join(argv)[-160:]}") from None
        self._keep(shlex.join(argv)[:200], process.returncode, output)
        if process.returncode not in ok:
            lines = [line for line in output.splitlines() if line.strip()][-6:]
            raise StepFailure(f"ended with {process.returncode}: {' / '.join(lines)[-700:]}")
        return output

    def _place(self) -> Figures:
        if not self.options.here:
            return {}
        folder = Path(sys.executable).parent
        return {
            "cwd": CHECKOUT,
            "env": {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "TERM": "dumb"},
        }

    def _keep(self, words: str, code: object, output: str) -> None:
        with (self.out / f"{self.name}.txt").open("a") as file:
            file.write(f"$ {words}\n{output}\n[{code}]\n")

    def machine(self, *argv: str, ok: Sequence[int] = (0,), **more: str) -> str:
        """Run a program of this machine, outside the lab."""
        words = [f"{name}={value}" for name, value in more.items()]
        return self._run(["env", *words, *argv], ok)

    def probe(self, *words: str) -> Figures:
        """The figures of `probe.py` on the host."""
        text = (HERE / "probe.py").read_text()
        return figures(self.on_host(f"sudo python3 - {shlex.join(words)}", text=text))

    def begin_probe(self, *words: str) -> subprocess.Popen[str]:
        """Begin `probe.py` on the host."""
        text = (HERE / "probe.py").read_text()
        return self.begin(f"sudo python3 - {shlex.join(words)}", text)

    def switch(self, model: str, ok: Sequence[int] = (0,)) -> Figures:
        """`switch.sh MODEL`: its seconds, its line of times, and the GPU's memory after it."""
        began = time.monotonic()
        output = self.on_host(f"sudo {SWITCH} {model}", ok)
        lines = [line.strip() for line in output.splitlines()]
        outcome = [line for line in lines if re.match(r"took:|.* is hot,|answered|.*sense", line)]
        return {"seconds": time.monotonic() - began, "said": outcome[-4:], **self.gpu()}

    def gpu(self) -> Figures:
        """MiB in use on the GPU, and the processes there; nothing without a GPU."""
        if self.options.here:
            return {}
        query = "nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits"
        mib, *apps = self.on_host(f"{query}; {APPS}").strip().splitlines()
        return {"gpu_mib": int(mib), "gpu_processes": apps}

    def status(self) -> Figures:
        """The part of `switch.sh status --json` that changes."""
        report: Figures = json.loads(self.on_host(f"{SWITCH} status --json"))
        keep = ("hot", "switching", "problems", "last_switch", "boot", "memory_holders")
        return {key: report.get(key) for key in keep}

    def until(self, condition: Callable[[], bool]) -> float:
        """Seconds until the condition holds; StepFailure at the step's limit."""
        began = time.monotonic()
        while True:
            try:
                if condition():
                    return time.monotonic() - began
            except StepFailure:
                pass
            if time.monotonic() > self.ends:
                raise StepFailure("not within the step's limit")
            time.sleep(0.3)

    def engine_lives(self) -> bool:
        """Tell whether an engine's process is there."""
        return self.on_host(f'test -n "{ENGINE}" && echo yes', (0, 1)).strip() == "yes"

    def hot(self, model: str) -> None:
        """Make the model hot if it is not."""
        if self.status()["hot"] != model:
            self.on_host(f"sudo {SWITCH} {model}")

    def deploy(self, inventory: str, *words: str) -> Figures:
        """A deploy: its seconds, and the operations that it did."""
        began = time.monotonic()
        output = self.do("pyinfra", "-y", inventory, "deploy.py", *words)
        seconds = time.monotonic() - began
        total = re.search(r"Grand total\s+(\d+)\s+(\S+)\s+(\S+)\s+(\S+)", output)
        counts = total.groups() if total else ()
        names = ("operations", "changed", "failed", "unchanged")
        return {"seconds": seconds, **dict(zip(names, counts, strict=False))}

    def changed_inventory(self, overrides: Figures) -> str:
        """Path, for the operator, of the inventory with other flags of the model's engine."""
        original = Path(self.options.inventory)
        text = CHANGED.format(
            original=str(original), group=original.stem, model=self.options.model,
            overrides=overrides,
        )  # fmt: skip
        folder = "measured/whole-run"
        place = CHECKOUT if self.options.here else self.lab / "checkout"
        (place / folder).mkdir(parents=True, exist_ok=True)
        (place / folder / original.name).write_text(text)
        return f"{folder}/{original.name}"


def kill(process: subprocess.Popen[str]) -> None:
    """End a command with all that it started."""
    os.killpg(process.pid, signal.SIGKILL)


def figures(output: str) -> Figures:
    """The JSON of a program's last line."""
    try:
        answer: Figures = json.loads(output.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise StepFailure(f"no figures: {output[-400:]}") from None
    return answer


# --- to serving


def assemble(run: Run) -> Figures:
    """Unpack all parts; PyTorch of this machine goes into wheels, not into the host's root."""
    run.machine("sh", "-c", f"mkdir -p /site && xz -dc {run.parts}/vllm.tar.xz | tar -x -C /site")
    return {"said": run.machine("sh", f"{run.parts}/boot.sh", "assemble", TORCH="/nonexistent")}


def train(run: Run) -> Figures:
    """Train the model that answers sense's questions, if nobody has; wait until it is trained."""
    folder = run.options.trained
    if not (folder / "trained.json").exists() and not run.options.training:
        folder.mkdir(parents=True, exist_ok=True)
        place = str(run.lab / "checkout")
        run.machine(
            "python3", "-m", "benchmarks.cuda.trained_model", str(folder), f"{place}/docs",
            "--seconds", "90", PYTHONPATH=place,
        )  # fmt: skip
    run.until((folder / "trained.json").exists)
    return dict(json.loads((folder / "trained.json").read_text()))


def wheels(run: Run) -> Figures:
    """Make wheels, and an index for the lab's web server, of what is installed here."""
    web = run.lab / "state" / "lab" / "services" / "web"
    web.mkdir(parents=True, exist_ok=True)
    site = run.machine("python3", "-c", SITE)
    need = "vllm torch torchvision mistral_common httpx2 httptools prometheus-client pydantic"
    return {
        "said": run.machine(
            "python3", "-m", "lab.packages.installed_wheels", str(web), "/site/site", site.strip(),
            f"{run.parts}/more", "--need", *need.split(), "starlette", "uvicorn", "uvloop",
            PYTHONPATH=str(run.lab / "checkout"),
        )
    }  # fmt: skip


def up(run: Run) -> Figures:
    """Publish the trained model, and boot one host with the GPU."""
    place = str(run.lab / "checkout")
    run.machine(
        "python3", "-c", PUBLISH, str(run.options.trained), str(run.lab / "state/lab"),
        PYTHONPATH=place,
    )  # fmt: skip
    run.machine("sh", f"{run.parts}/boot.sh", "enter")
    return {"said": run.do("lockstep", "lab", "up", "--hosts", "1", "--gpu")}


def about(run: Run) -> Figures:
    """Card, driver and versions of what is measured."""
    card = {} if run.options.here else {"card": run.on_host(CARD).strip()}
    versions = run.on_host(f"{VENV} -c {shlex.quote(VERSIONS)} 2>/dev/null")
    return {
        **card,
        "python, torch, vllm": versions.strip(),
        "kernel, cores, memory": run.on_host("uname -r; nproc; free -g | sed -n 2p").split("\n"),
    }


def deploy(run: Run) -> Figures:
    """The first deploy."""
    return run.deploy(run.options.inventory)


def deploy_again(run: Run) -> Figures:
    """A second deploy, which changes nothing."""
    again = run.deploy(run.options.inventory)
    if again.get("changed") != "-":
        raise StepFailure("the second deploy changed something", again)
    return again


def diff(run: Run) -> Figures:
    """No drift."""
    began = time.monotonic()
    output = run.do("lockstep", "diff", "--inventory", run.options.inventory)
    return {"seconds": time.monotonic() - began, "said": output.strip().splitlines()[-1]}


def first_switch(run: Run) -> Figures:
    """The model's first start, with everything compiled."""
    return run.switch(run.options.model)


def sense(run: Run) -> Figures:
    """Right answers, asked for once more by the host's own program."""
    began = time.monotonic()
    output = run.on_host(f"{ON_HOST} sense")
    return {"seconds": time.monotonic() - began, "said": output.strip().splitlines()[-6:]}


# --- requests


def _ask(run: Run, kind: str, model: str) -> Figures:
    answer = run.probe("ask", kind, model)
    if answer["code"] != 200:
        raise StepFailure(f"HTTP {answer['code']}: {answer['text']}", answer)
    return answer


def chat(run: Run) -> Figures:
    """One answer through the gateway."""
    return _ask(run, "chat", run.options.model)


def stream(run: Run) -> Figures:
    """One streamed answer through the gateway."""
    return _ask(run, "stream", run.options.model)


def messages(run: Run) -> Figures:
    """One answer in Anthropic's form through the gateway."""
    return _ask(run, "messages", run.options.model)


def embeddings(run: Run) -> Figures:
    """Vectors of a third model through the gateway."""
    start = run.switch(run.options.vectors)
    answer = _ask(run, "embeddings", run.options.vectors)
    return {**answer, "switch_s": start["seconds"], "gpu_mib": start.get("gpu_mib")}


def bench(run: Run) -> Figures:
    """`lockstep bench` of the hot model."""
    run.hot(run.options.model)
    output = run.do(
        "lockstep", "bench", "run", HOST, "--inventory", run.options.inventory, "--suite", "decode",
        "--quick", "--repeat", "3", "--tokens", "128", "--output", "/tmp/whole-run-bench.json",
        ok=(0, 2),
    )  # fmt: skip
    return {"said": [line.rstrip() for line in output.splitlines() if line.strip()][-12:]}


def ruler(run: Run) -> Figures:
    """Lockstep's client and `vllm bench serve` in turn, on the host, at 1 and 8 streams."""
    run.hot(run.options.model)
    place = CHECKOUT if run.options.here else run.lab / "checkout"
    archive = run.out / "archive.tar"
    run.machine("tar", "-C", str(place), "-cf", str(archive), "lockstep", "benchmarks", "catalogue")
    with archive.open("rb") as file:
        subprocess.run(
            run.command(["lockstep", "lab", "ssh", HOST, "--", "mkdir -p r && tar -x -C r"]),
            stdin=file, check=True, timeout=60, **run._place(),
        )  # fmt: skip
    archive.unlink()
    port = run.options.port
    answer = figures(run.on_host(f"curl -s 127.0.0.1:{port}/v1/models | tr -d '\\n'"))["data"][0]
    copy = (
        "rm -rf /tmp/tokenizer; file=$(find /data /var -path '*snapshots*' -name tokenizer.json"
        f" | grep {run.options.folder} | head -n 1); cp -rL $(dirname $file) /tmp/tokenizer"
        " && chmod -R a+rX /tmp/tokenizer"
    )
    run.on_host(f"sudo sh -c {shlex.quote(copy)} 2>&1")
    job = {"url": f"http://127.0.0.1:{port}", "model": answer["id"], "tokenizer": "/tmp/tokenizer",
           "rounds": 3, "streams": [1, 8], "tokens": 128, "requests_per_stream": 2}  # fmt: skip
    output = run.on_host(
        f"cd r && PYTHONPATH=. HF_HUB_OFFLINE=1 {VENV} -m benchmarks.side_by_side 2>/tmp/ruler.err"
        " || { tail -n 5 /tmp/ruler.err; exit 1; }", text=json.dumps(job),
    )  # fmt: skip
    rows = json.loads(output.strip().splitlines()[-1])
    found: Figures = {}
    for row in rows:
        key = f"{row['ruler']}, {row['streams']} streams, tok/s"
        found.setdefault(key, []).append(round(row["total_tok_s"], 1))
    return found


# --- switches


def switches(run: Run) -> Figures:
    """To another model and back, ten times or as often as there is time; the GPU's memory."""
    run.hot(run.options.model)
    rounds: list[Figures] = []
    for _ in range(run.options.rounds):
        if rounds and run.ends - time.monotonic() < 1.5 * rounds[-1]["there_s"] * 2:
            break
        second = run.switch(run.options.second)
        home = run.switch(run.options.model)
        rounds.append({
            "there_s": second["seconds"], "back_s": home["seconds"],
            "there_mib": second.get("gpu_mib"), "back_mib": home.get("gpu_mib"),
        })  # fmt: skip
        (run.out / "switches.json").write_text(json.dumps(rounds))
    began = time.monotonic()
    run.on_host(f"sudo {SWITCH} none")
    off = run.gpu()
    spans = [sorted(row[key] for row in rounds) for key in ("there_s", "back_s")]
    return {
        "rounds": len(rounds),
        "there_s": [spans[0][0], spans[0][len(rounds) // 2], spans[0][-1]],
        "back_s": [spans[1][0], spans[1][len(rounds) // 2], spans[1][-1]],
        "there_mib": sorted({row["there_mib"] for row in rounds}, key=str),
        "back_mib": sorted({row["back_mib"] for row in rounds}, key=str),
        "none_s": time.monotonic() - began,
        "off": off,
    }


# --- faults


def _fault(run: Run, command: str, limit_s: float) -> Figures:
    run.hot(run.options.model)
    memory_before = run.gpu().get("gpu_mib")
    found = run.probe("back", run.options.model, str(limit_s), command)
    return {**found, "before_mib": memory_before, **run.gpu()}


def engine_killed(run: Run) -> Figures:
    """The engine's process is killed while it serves."""
    return _fault(run, f"kill -KILL {ENGINE}", 150)


def frozen(run: Run) -> Figures:
    """The engine's process is stopped by SIGSTOP while it rests; the wedge watch acts."""
    found = _fault(run, f"kill -STOP {ENGINE}", 560)
    log = run.on_host("sudo journalctl -u lockstep-wedge -b --no-pager -o cat | tail -n 6")
    return {**found, "wedge": log.strip().splitlines()}


def gpu_full(run: Run) -> Figures:
    """Another process holds most of the GPU while the model starts."""
    run.hot(run.options.second)
    unit = "sudo systemd-run --unit=hold --collect --pipe -q"
    hold = run.begin(f"{unit} {VENV} - {run.options.hold}", HOLD)
    try:
        run.until(lambda: hold.poll() is not None or run.gpu()["gpu_mib"] > run.options.hold * 1000)
        if hold.poll() is not None:
            raise StepFailure(f"nobody could take so much: {run.end(hold)[-300:]}")
        began = time.monotonic()
        output = run.on_host(f"sudo {SWITCH} {run.options.model}", (0, 1, 3, 4))
        seconds = time.monotonic() - began
        status, memory = run.status(), run.gpu()
    finally:
        run.on_host("sudo systemctl stop hold", (0, 1, 5))
        if hold.poll() is None:
            kill(hold)
    freed_s = run.until(lambda: run.gpu()["gpu_mib"] < run.options.hold * 1000)
    return {
        "seconds": seconds, "said": output.strip().splitlines()[-10:], "hot": status["hot"],
        "beside it": memory, "freed_s": freed_s, "again": run.switch(run.options.model)["seconds"],
    }  # fmt: skip


def _cut(run: Run) -> Figures:
    began = time.monotonic()
    run.do("lockstep", "lab", "cycle", HOST)
    cycled_s = time.monotonic() - began
    run.on_host("sudo systemctl is-system-running --wait", (0, 1))
    found = {"cycled_s": cycled_s, "running_s": time.monotonic() - began, **run.gpu()}
    status = run.status()
    found |= {"hot": status["hot"], "problems": status["problems"]}
    if status["hot"] is not None:
        raise StepFailure("a model is hot after a power cut", found)
    return found


def cut_loading(run: Run) -> Figures:
    """The power fails while the model loads."""
    run.on_host(f"sudo {SWITCH} none")
    off = run.gpu()
    switch = run.begin(f"sudo {SWITCH} {run.options.model}")
    run.until(run.engine_lives)
    if not run.options.here:
        run.until(lambda: run.gpu()["gpu_mib"] > 400)
    loading = run.gpu()
    cut = _cut(run)
    outcome = run.end(switch).strip().splitlines()[-2:]
    return {"off": off, "loading": loading, **cut, "switch_said": outcome}


def cut_serving(run: Run) -> Figures:
    """The power fails while the model answers; the model comes back on request."""
    run.hot(run.options.model)
    clients = run.begin_probe("busy", run.options.model, "60")
    time.sleep(2)
    serving = run.gpu()
    cut = _cut(run)
    run.end(clients)
    return {"serving": serving, **cut, "again": run.switch(run.options.model)}


def memory_minimum(run: Run) -> Figures:
    """A program takes real memory until the memory watch ends the engine."""
    run.hot(run.options.model)
    # The lab shows a Spark's figures here; this machine's own are below it.
    run.on_host("sudo umount /proc/meminfo; sudo systemctl restart lockstep-memory")
    found = run.probe("fill", "3.2", "150")
    log = run.on_host("sudo journalctl -u lockstep-memory -b --no-pager -o cat | tail -n 4")
    run.until(lambda: run.status()["switching"] is None)
    return {**found, "memory_watch": log.strip().splitlines(), **run.status(), **run.gpu()}


def flags_changed(run: Run) -> Figures:
    """A deploy changes the engine's flags while clients ask."""
    run.hot(run.options.model)
    run.on_host("sudo rm -f /run/whole-run-stop")
    clients = run.begin_probe("busy", run.options.model, "280")
    time.sleep(2)
    figures_of_deploy = run.deploy(run.changed_inventory({"max_num_seqs": 8}))
    time.sleep(3)
    run.on_host("sudo touch /run/whole-run-stop")
    asked = figures(run.end(clients))
    flags = run.on_host("ps -eo args | grep -o 'max-num-seqs [0-9]*' | head -n 1").strip()
    if flags != "max-num-seqs 8":
        raise StepFailure(f"the engine runs with {flags or 'other flags'}", figures_of_deploy)
    return {**figures_of_deploy, "clients": asked, "flags": flags, "hot": run.status()["hot"]}


def rollback(run: Run) -> Figures:
    """Back to the generation before that deploy."""
    began = time.monotonic()
    output = run.on_host(f"{ON_HOST} rollout back whole-run")
    seconds = time.monotonic() - began
    flags = run.on_host("ps -eo args | grep -o 'max-num-seqs [0-9]*' | head -n 1").strip()
    found = {"seconds": seconds, "said": output.strip().splitlines()[-4:], "flags": flags}
    if flags == "max-num-seqs 8":
        raise StepFailure("the engine still runs with the changed flags", found)
    return {**found, "chat": run.probe("ask", "chat", run.options.model)["code"]}


def drift(run: Run) -> Figures:
    """Drift is planted, named and mended."""
    run.on_host(f"echo '# planted' | sudo tee -a {DRIFTED}; sudo systemctl disable --now earlyoom")
    words = ("lockstep", "diff", "--inventory", run.options.inventory)
    output = run.do(*words, ok=(1,))
    began = time.monotonic()
    run.do(*words, "--fix", "--yes")
    seconds = time.monotonic() - began
    run.do(*words)
    lines = [line.strip() for line in output.splitlines() if re.search("logrotate|earlyoom", line)]
    return {"named": lines, "mended_s": seconds}


def evidence(run: Run) -> Figures:
    """The page of evidence of this host."""
    began = time.monotonic()
    output = run.do(
        "lockstep", "evidence", "--inventory", run.options.inventory, "--output",
        "measured/whole-run/evidence", ok=(0, 1),
    )  # fmt: skip
    place = CHECKOUT if run.options.here else run.lab / "checkout"
    for path in (place / "measured/whole-run/evidence").glob("*.json"):
        (run.out / "evidence.json").write_bytes(path.read_bytes())
    return {"seconds": time.monotonic() - began, "said": output.strip().splitlines()[-6:]}


def smi(run: Run) -> Figures:
    """Answers of the real nvidia-smi, which the lab's stand-in has to give as well."""
    run.hot(run.options.model)
    unit = "sudo systemd-run --wait --collect --pipe -q --uid=spark"
    alone, policy = f"{unit} -p PrivateDevices=yes", f"{unit} -p DevicePolicy=closed"
    commands = {
        "screen": "nvidia-smi",
        "no devices": f"{alone} nvidia-smi",
        "no devices, query": f"{alone} nvidia-smi --query-gpu=name --format=csv",
        "no devices, list": f"{alone} nvidia-smi -L",
        "no devices, apps": f"{alone} {APPS}",
        "a closed policy": f"{policy} nvidia-smi -L",
        "its nodes let through": f"{policy} -p 'DeviceAllow=char-nvidia* rw' nvidia-smi -L",
        "apps": "nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv",
        "apps, two words": "nvidia-smi --query-compute-apps=pid,name,used_gpu_memory --format=csv",
        "unknown field": "nvidia-smi --query-gpu=nonsense --format=csv",
        "unknown option": "nvidia-smi --nonsense",
        "reasons": "nvidia-smi --query-gpu=clocks_event_reasons.active,clocks.sm,pstate,power.draw,"
        "clocks.gr,temperature.gpu,utilization.gpu,persistence_mode,mig.mode.current --format=csv",
        "no units": "nvidia-smi --query-gpu=clocks.sm,power.draw,memory.used"
        " --format=csv,noheader,nounits",
        "cap as a user": "nvidia-smi -lgc 300,1200",
    }
    found = {}
    for name, command in commands.items():
        output = run.on_host(f"{command} 2>&1; echo code $?")
        found[name] = output.strip().splitlines()[-12:]
    return found


#: Step: its function, its limit in seconds, its usual seconds, and steps that it needs.
STEPS: dict[str, tuple[Callable[[Run], Figures], int, int, tuple[str, ...]]] = {
    "assemble": (assemble, 150, 30, ()),
    "train": (train, 150, 20, ("assemble",)),
    "wheels": (wheels, 200, 30, ("assemble",)),
    "up": (up, 90, 10, ("wheels", "train")),
    "deploy": (deploy, 400, 150, ("up",)),
    "about": (about, 90, 25, ("deploy",)),
    "deploy-again": (deploy_again, 90, 5, ("deploy",)),
    "diff": (diff, 60, 4, ("deploy",)),
    "first-switch": (first_switch, 200, 65, ("deploy",)),
    "sense": (sense, 60, 8, ("first-switch",)),
    "chat": (chat, 60, 2, ("first-switch",)),
    "stream": (stream, 60, 2, ("first-switch",)),
    "messages": (messages, 60, 2, ("first-switch",)),
    "smi": (smi, 60, 8, ("first-switch",)),
    "killed": (engine_killed, 200, 50, ("first-switch",)),
    "flags-changed": (flags_changed, 300, 60, ("first-switch",)),
    "rollback": (rollback, 150, 40, ("flags-changed",)),
    "drift": (drift, 150, 40, ("deploy",)),
    "cut-serving": (cut_serving, 200, 60, ("first-switch",)),
    "memory-minimum": (memory_minimum, 250, 80, ("first-switch",)),
    "cut-loading": (cut_loading, 120, 40, ("first-switch",)),
    "gpu-full": (gpu_full, 250, 120, ("first-switch",)),
    "embeddings": (embeddings, 150, 40, ("deploy",)),
    "ruler": (ruler, 150, 70, ("first-switch",)),
    "bench": (bench, 150, 60, ("first-switch",)),
    "evidence": (evidence, 60, 10, ("deploy",)),
    "frozen": (frozen, 620, 480, ("first-switch",)),
    "switches": (switches, 540, 100, ("first-switch",)),
}
#: Steps that make a lab on a machine with a GPU.
_TO_A_LAB = ("assemble", "train", "wheels", "up")
_OF_A_GPU = ("smi", "gpu-full", "memory-minimum", "sense", "embeddings")


def main() -> int:
    """Command line; see the module's docstring."""
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    record = options.out / "whole_run.json"
    document: Figures = json.loads(record.read_text()) if record.exists() else {"steps": {}}
    document |= {"date": datetime.datetime.now(datetime.UTC).date().isoformat()}
    document.setdefault("calls", []).append(" ".join(sys.argv[1:]))
    results = document["steps"]
    run, began, failures = Run(options), time.monotonic(), 0
    left_out = (*_TO_A_LAB, *_OF_A_GPU) if options.here else ()
    for name in options.step or [name for name in STEPS if name not in left_out]:
        function, limit_s, usual_s, needs = STEPS[name]
        if results.get(name, {}).get("state") == "measured" and not options.again:
            continue
        left_s = options.seconds - (time.monotonic() - began)
        lacking = [need for need in needs if need not in left_out
                   and results.get(need, {}).get("state") != "measured"]  # fmt: skip
        if lacking or left_s < usual_s:
            reason = f"needs {', '.join(lacking)}" if lacking else "no time left"
            results.setdefault(name, {"state": "not measured", "reason": reason})
            continue
        run.name, step_began = name, time.monotonic()
        run.ends = step_began + min(limit_s, left_s)
        try:
            result = {"state": "measured", "figures": function(run)}
        except StepFailure as failure:
            result = {"state": "failed", "reason": str(failure), "figures": failure.figures}
        except Exception:
            result = {"state": "failed", "reason": traceback.format_exc()[-600:], "figures": {}}
        seconds = time.monotonic() - step_began
        failures += result["state"] == "failed"
        results[name] = {**result, "took_s": round(seconds, 1)}
        print(f"{name:<15}{seconds:6.1f} s  {result['state']}: {result.get('reason', '')}"
              f"{json.dumps(short_figures(result['figures']))[:600]}", flush=True)  # fmt: skip
        record.write_text(json.dumps(document, indent=1))
        (options.out / "whole_run.md").write_text(page(document))
    record.write_text(json.dumps(document, indent=1))
    (options.out / "whole_run.md").write_text(page(document))
    return 1 if failures else 0


def short_figures(value: Any) -> Any:
    """The same with two decimals."""
    if isinstance(value, float):
        return round(value, 2)
    if isinstance(value, dict):
        return {key: short_figures(item) for key, item in value.items()}
    return [short_figures(item) for item in value] if isinstance(value, list) else value


def page(document: Mapping[str, Any]) -> str:
    """The page: a row for each step."""
    rows = []
    for name, (function, *_) in STEPS.items():
        result = document["steps"].get(name, {"state": "not measured"})
        subject = str(function.__doc__).splitlines()[0]
        found = short_figures(result.get("figures", {}))
        cells = [f"{key}: {json.dumps(value)}" for key, value in found.items()]
        text = "; ".join([*filter(None, [result.get("reason", "")]), *cells]).replace("|", "\\|")
        state = result["state"] + (f", {result['took_s']} s" if "took_s" in result else "")
        rows.append(f"| {name} | {subject} | {state} | {text[:1500]} |")
    calls = "\n".join(f"    python3 lab/carry/whole_run.py {call}" for call in document["calls"])
    head = "| step | what | state | figures |\n|---|---|---|---|"
    return f"# A whole run, {document['date']}\n\n{calls}\n\n{head}\n" + "\n".join(rows) + "\n"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="whole_run.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--parts", type=Path, default=HERE, help="folder of the parts")
    parser.add_argument("--out", type=Path, default=Path("/tmp/whole-run"), help="folder to write")
    parser.add_argument("--seconds", type=float, default=86400, help="time of this call")
    parser.add_argument("--again", action="store_true", help="repeat the named steps")
    parser.add_argument("--here", action="store_true", help="a lab that is up, without a GPU")
    parser.add_argument("--inventory", default="inventories/lab_gpu.py")
    parser.add_argument("--trained", type=Path, default=Path("/trained"), help="the trained model")
    parser.add_argument("--training", action="store_true", help="another program trains it now")
    parser.add_argument("--model", default="trained", help="the model of most steps")
    parser.add_argument("--port", type=int, default=8001, help="the port of its engine")
    parser.add_argument("--folder", default="trained-qwen3", help="its repository's name")
    parser.add_argument("--second", default="tiny", help="the model of the switches")
    parser.add_argument("--vectors", default="vectors", help="the model of the vectors")
    parser.add_argument("--rounds", type=int, default=10, help="switches there and back")
    parser.add_argument("--hold", type=int, default=100, help="GiB of the GPU for somebody else")
    parser.add_argument("step", nargs="*", metavar="STEP", help=", ".join(STEPS))
    options = parser.parse_args()
    if unknown := set(options.step) - set(STEPS):
        parser.error(f"no such step: {', '.join(sorted(unknown))}")
    return options


if __name__ == "__main__":
    sys.exit(main())
