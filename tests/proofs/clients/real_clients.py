"""The real Codex, Claude Code, opencode, Continue and aider at the gateway.

`make clients` runs it:

    python tests/proofs/clients/real_clients.py [--programs FOLDER] [NAME …]

Each program is configured with the output of `lockstep client NAME`. It asks both stand-ins, which
refuse what the chat templates of their models refuse. One question makes the program read a file
with its tool, so that a second request carries the tool's result. FOLDER keeps the
installed programs. Needs node and npm. Exit code 0 if each has answered with the engine's words.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

HELPERS = Path(__file__).resolve().parents[2] / "helpers"
sys.path[:0] = [str(HELPERS), *map(str, HELPERS.iterdir())]

from gateway_process import KEYS, OPERATE, Spark, ask, hot  # noqa: E402
from templated_engines import KINDS, templated_spark  # noqa: E402

from lockstep.clients.offer import GatewayOffer, OfferedModel  # noqa: E402
from lockstep.clients.programs import PROGRAMS  # noqa: E402

# With these each answer of the stand-in begins; a program may break a line after any of them.
_SAID = "The stand-in engine has no model and answers"
_CONTEXT, _LIMIT_S = 131072, 300


@dataclass(frozen=True)
class Real:
    """A program: package and version, command, and its name for the tool that reads files."""

    package: str
    argv: tuple[str, ...]
    wish: str = ""
    npm: bool = True
    last: tuple[str, ...] = ()

    def words(self, folder: Path, file: Path) -> list[str]:
        """The program's command line."""
        wish = f"Use the tool {self.wish} {file}" if self.wish else "Say something."
        return [str(folder / self.argv[0]), *self.argv[1:], wish, *self.last]


_AIDER = ("--no-check-update", "--no-analytics", "--yes-always", "--no-auto-commits", "--message")
REAL = {
    "codex": Real(
        "@openai/codex@0.171.0",
        ("codex", "exec", "--profile", "lockstep", "--skip-git-repo-check"),
        "exec_command with cmd",
    ),
    "claude": Real(
        "@anthropic-ai/claude-code@2.1.197",
        ("claude", "--allowedTools=Read", "-p"),
        "Read with file_path",
    ),
    "opencode": Real("opencode-ai@1.18.33", ("opencode", "run"), "read with filePath"),
    "continue": Real("@continuedev/cli@1.5.47", ("cn", "--auto", "-p"), "Read with filepath"),
    "aider": Real("aider-chat==0.86.2", ("aider", *_AIDER), npm=False, last=("a.txt",)),
}


def tell(
    model: str, name: str, good: bool, words: str, result: subprocess.CompletedProcess[str]
) -> bool:
    """Print an outcome, with the program's output where it fails; returns the outcome."""
    print(f"{model:8} {name:9} {'works' if good else 'FAILS'}: {words}", flush=True)
    if not good:
        print(f"ended with {result.returncode}\n{result.stdout[-2000:]}\n{result.stderr[-2000:]}")
    return good


def install(folder: Path, names: Sequence[str]) -> Path:
    """Install the programs, of npm and of PyPI, in a folder; those that are there stay."""
    programs = folder / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    for name in names:
        real = REAL[name]
        target = programs / real.argv[0]
        if target.exists():
            continue
        if real.npm:
            npm = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"]
            subprocess.run([*npm, f"--prefix={folder}", real.package], check=True)
            target.symlink_to(folder / "node_modules" / ".bin" / target.name)
        else:
            uv = str(Path(sys.executable).with_name("uv"))
            own = folder / name
            subprocess.run([uv, "venv", "-q", "--python", sys.executable, str(own)], check=True)
            pip = [uv, "pip", "install", "-q", "--python", str(own / "bin" / "python")]
            subprocess.run([*pip, real.package], check=True)
            target.symlink_to(own / "bin" / target.name)
    return programs


def client_variables(name: str, spark: Spark, folder: Path) -> dict[str, str]:
    """The variables of a person who has followed the output of `lockstep client NAME`."""
    listener = spark.listener("open")
    key = folder / "key"
    key.write_text(KEYS["use"], encoding="utf-8")
    model = OfferedModel("auto", "auto", context=_CONTEXT)
    url = f"http://{listener.address}:{listener.port}"
    offer = GatewayOffer("spark1", url, (model,), wait_s=_LIMIT_S, has_key=True)
    for part in PROGRAMS[name].parts(offer, key):
        path = folder / part.path.removeprefix("~/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(part.text, encoding="utf-8")
    (folder / ".codex").mkdir(exist_ok=True)
    variables = {PROGRAMS[name].variable: KEYS["use"], "HOME": str(folder), "CI": "1"}
    return {"PATH": os.environ["PATH"], "TERM": "dumb", **variables}


def run(name: str, programs: Path, spark: Spark, model: str) -> bool:
    """Ask once with a program; returns the outcome."""
    with tempfile.TemporaryDirectory() as folder:
        home, work = Path(folder), Path(folder, "work")
        work.mkdir()
        (work / "a.txt").write_text("hello\n", encoding="utf-8")
        (work / "AGENTS.md").write_text("Be brief.\n", encoding="utf-8")
        subprocess.run(["git", "init", "-q", str(work)], check=True)
        file = Path("ls") if name == "codex" else work / "a.txt"
        earlier_counts, began = counts(spark), time.monotonic()
        result = subprocess.run(
            REAL[name].words(programs, file),
            cwd=work,
            env=client_variables(name, spark, home),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
        )
    request_count, evened_count = (
        later - earlier for later, earlier in zip(counts(spark), earlier_counts, strict=True)
    )
    has_answer = _SAID in " ".join(result.stdout.split())
    least_count = 2 if REAL[name].wish else 1
    good = result.returncode == 0 and has_answer and request_count >= least_count
    words = f"{request_count} requests, {evened_count} shapes evened out"
    return tell(model, name, good, f"{words}, {time.monotonic() - began:.0f} s", result)


def counts(spark: Spark) -> tuple[int, int]:
    """Requests to a model, and evened-out shapes, since the start."""
    lines = ask(spark, "GET", "/metrics")[1].decode().splitlines()

    def total(name: str) -> int:
        return sum(int(float(line.split()[-1])) for line in lines if line.startswith(f"{name}{{"))

    return total("lockstep_gateway_requests_total"), total("lockstep_gateway_evened_total")


def main() -> int:
    """Install and configure each program, and ask with each before each engine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", default=list(REAL))
    parser.add_argument("--programs", type=Path)
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = options.programs or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        names = [name for name in options.names if name in REAL]
        programs = install(folder.resolve(), names)
        host = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        spark, _ = stack.enter_context(templated_spark(host, log=subprocess.DEVNULL))
        results = []
        for model in KINDS:
            hot(spark, model)
            results += [run(name, programs, spark, model) for name in names]
        use = json.loads(ask(spark, "GET", "/status", headers=OPERATE)[1])["use"]
        print(json.dumps(use.get("evened", {})))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
