"""The lab of a whole run, and how its steps reach a host of it."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

_CARRY = Path(__file__).resolve().parent.parent
#: This checkout, or the folder of the parts.
TOP = _CARRY.parent.parent
SWITCH = "/data/scripts/llm/switch.sh"
ENGINE = "$(pgrep -x VLLM::EngineCor || pgrep -f ^VLLM::EngineCore)"
VENV = "/opt/lockstep/engines/current/venv/bin/python"
ON_HOST = "sudo python3 /usr/local/lib/lockstep"
APPS = "nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv,noheader"
Figures = dict[str, Any]

#: An inventory that is another one with other data of some models, and recipes of more folders.
CHANGED = """
import runpy
from lockstep.deploy.checked import checked

_hosts, _ = runpy.run_path({original!r})[{group!r}]
_models = {models!r}
{group} = checked(__file__, [
    (name, {{
        **data,
        "models": {{**data["models"], **{{
            model: {{**data["models"].get(model, {{}}), **keys}} for model, keys in _models.items()
        }}}},
        "recipe_folders": (*data["recipe_folders"], *{recipe_folders!r}),
    }})
    for name, data in _hosts
])
"""


class StepFailure(Exception):
    """A step whose outcome is not the expected one; `figures` are what it measured before."""

    def __init__(self, reason: str, figures: Mapping[str, Any] | None = None) -> None:
        super().__init__(reason)
        self.figures = dict(figures or {})


class Run:
    """The lab, and how to reach it from here.

    Attributes:
        host: The host of most steps.
        out: The folder to write.
        name: The step that is done now, and `ends` the monotonic time of its limit.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.host: str = options.host
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

    def on_host(
        self, command: str, ok: Sequence[int] = (0,), text: str = "", host: str = ""
    ) -> str:
        """Run shell text on a host as the operator."""
        return self.do("lockstep", "lab", "ssh", host or self.host, "--", command, ok=ok, text=text)

    def begin(self, command: str, text: str = "", host: str = "") -> subprocess.Popen[str]:
        """Begin shell text on a host; `end` gives its output."""
        process = subprocess.Popen(
            self.command(["lockstep", "lab", "ssh", host or self.host, "--", command]),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", start_new_session=True, **self.place(),
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
            text=True, errors="replace", start_new_session=True, **self.place(),
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

    @property
    def checkout(self) -> Path:
        """The checkout that the operator's commands run in."""
        return TOP if self.options.here else self.lab / "checkout"

    def place(self) -> Figures:
        """The place of the operator's commands, as arguments of `Popen`."""
        if not self.options.here:
            # Not the folder of the parts: `python3 -m lab...` would take the `lab` there.
            return {"cwd": "/"}
        folder = Path(sys.executable).parent
        return {
            "cwd": TOP,
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
        text = (_CARRY / "probe.py").read_text()
        return figures(self.on_host(f"sudo python3 - {shlex.join(words)}", text=text))

    def begin_probe(self, *words: str, host: str = "") -> subprocess.Popen[str]:
        """Begin `probe.py` on a host."""
        text = (_CARRY / "probe.py").read_text()
        return self.begin(f"sudo python3 - {shlex.join(words)}", text, host)

    def switch(self, model: str, ok: Sequence[int] = (0,)) -> Figures:
        """`switch.sh MODEL`: its seconds, its line of times, and the GPU's memory after it."""
        began = time.monotonic()
        output = self.on_host(f"sudo {SWITCH} {model}", ok)
        lines = [line.strip() for line in output.splitlines()]
        outcome = [line for line in lines if re.match(r"took:|.* is hot,|answered|.*sense", line)]
        return {"seconds": time.monotonic() - began, "said": outcome[-4:], **self.gpu()}

    def gpu(self, host: str = "") -> Figures:
        """MiB in use on a host's GPU, and the processes there; nothing without a GPU."""
        if self.options.here:
            return {}
        query = "nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits"
        mib, *apps = self.on_host(f"{query}; {APPS}", host=host).strip().splitlines()
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

    def make_hot(self, model: str) -> None:
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

    def changed_inventory(
        self, models: Mapping[str, Figures], recipe_folders: Sequence[str] = ()
    ) -> str:
        """Path, for the operator, of the inventory with other data of these models."""
        original = Path(self.options.inventory)
        text = CHANGED.format(
            original=str(original), group=original.stem, models=dict(models),
            recipe_folders=tuple(recipe_folders),
        )  # fmt: skip
        folder = "measured/whole-run"
        (self.checkout / folder).mkdir(parents=True, exist_ok=True)
        (self.checkout / folder / original.name).write_text(text)
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
