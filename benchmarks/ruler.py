"""Our ruler beside vLLM's own `vllm bench serve`, on the same engine and prompts.

With the lab deployed and its real vLLM hot (`switch.sh tiny` on the first host):

    LOCKSTEP_LAB=NAME python -m benchmarks.ruler [ROUNDS]

Both run on the host, by the engine's own Python, and ask the same prompts for the same number of
tokens, one request at a time, in turn in one run, so that the comparison holds on a machine whose
speed drifts. Prompts differ in the mark at their beginning only, or the engine's prefix cache would
answer whoever comes second.
"""

from __future__ import annotations

import io
import json
import shlex
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import lockstep
from lockstep.bench import reach
from lockstep.bench.prompts import SHAPES, user
from lockstep.onhost.core.config import Target

INVENTORY = Path("inventories/lab.py")
TOKENS = 256
VENV = "/opt/lockstep/engines/current/venv/bin"
FOLDER = "/var/tmp/lockstep-ruler"
ENVIRONMENT = {
    "HOME": FOLDER,
    "HF_HUB_OFFLINE": "1",
    "PYTHONPATH": f"{FOLDER}/site",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}
# Runs on the host: our client on prompts from standard input.
_PROGRAM = """
import dataclasses, json, sys
from lockstep.bench.client import Client
from lockstep.bench.sample import Ask
from lockstep.onhost.engines import ENGINES
url, model, tokens, prompts = json.load(sys.stdin)
client = Client(url, model)
client.engine = ENGINES["vllm"]
# As a canary before a suite, and as vLLM's own trial request.
client.complete(Ask("warm", ({"role": "user", "content": "Say hello."},), 16, ignore_eos=True))
asks = [Ask("x", ({"role": "user", "content": text},), tokens, ignore_eos=True) for text in prompts]
print(json.dumps([dataclasses.asdict(client.complete(ask)) for ask in asks]))
"""
# What vllm's extra `bench` adds and a server does not need; the lab's index does not have it.
EXTRA = ("pandas", "python-dateutil", "pytz", "six", "tzdata")


@dataclass
class Figures:
    """One ruler's samples, each of one request.

    Attributes:
        whole_tok_s: All tokens over the whole time.
        first_s: Time to the first token, of answers that came token by token.
        decode_tok_s: Tokens after the first over the time after it, of these.
        at_once: Answers of which more than half had been generated before anything of them came:
            on two cores the engine's server does not always get its turn. They have no first token
            that a ruler could see.
    """

    whole_tok_s: list[float] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)
    decode_tok_s: list[float] = field(default_factory=list)
    at_once: int = 0

    def add(self, tokens: int, first: float, whole: float) -> None:
        """One request: seconds to the first and to the last token."""
        self.whole_tok_s.append(tokens / whole)
        if first > whole / 2:
            self.at_once += 1
            return
        self.first_s.append(first)
        self.decode_tok_s.append((tokens - 1) / (whole - first))


def main() -> int:
    """Print both rulers' figures; 1 where their middle halves do not overlap."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    # Reading the lab's inventory moves this process into a network without a way out.
    packed = _packed()
    place = reach.place(INVENTORY, "spark1")
    hot = reach.hot(place)
    _on_host(place, f"rm -rf {FOLDER} && mkdir -p {FOLDER} && tar -x -C {FOLDER}", packed)
    ours, theirs = Figures(), Figures()
    _ours(place, hot)
    for _ in range(rounds):
        for found in _ours(place, hot):
            assert not (found["fault"] or found["refusal"]), found
            ours.add(found["tokens"], found["first_s"], found["last_s"])
        for tokens, first, whole in _theirs(place, hot):
            theirs.add(tokens, first, whole)
    count = len(ours.whole_tok_s)
    print(f"{count} requests of {TOKENS} tokens each; at once: {ours.at_once}, {theirs.at_once}")
    if min(len(ours.first_s), len(theirs.first_s)) < 2:
        sys.exit("too few answers came token by token. Let nothing else run here, or ask for more")
    agree = [
        _row("time to first token, ms", ours.first_s, theirs.first_s, 1000),
        _row("after the first token, tok/s", ours.decode_tok_s, theirs.decode_tok_s),
        _row("whole request, tok/s", ours.whole_tok_s, theirs.whole_tok_s),
    ]
    return 0 if all(agree) else 1


def _packed() -> bytes:
    """This package, and vLLM's extra for its benchmark: beside the engine's environment."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder]
        subprocess.run([*pip, "--only-binary", ":all:", *EXTRA], check=True)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(folder, "site")
            archive.add(Path(lockstep.__file__).parent, "site/lockstep")
    return packed.getvalue()


def _on_host(place: reach.Place, script: str, given: bytes) -> str:
    argv = place.where.command(["sudo", "-n", "sh", "-c", script])
    done = subprocess.run(argv, input=given, capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{place.where.name}: {done.stderr.decode()[-2000:]}")
    return done.stdout.decode()


def _prompts() -> list[str]:
    return [str(user(text)[0]["content"]) for text in SHAPES.values()]


def _ours(place: reach.Place, hot: Target) -> list[dict[str, Any]]:
    asked = json.dumps([hot.engine_url or hot.url, hot.model, TOKENS, _prompts()]).encode()
    program = shlex.join([f"{VENV}/python", "-c", _PROGRAM])
    found: list[dict[str, Any]] = json.loads(_on_host(place, f"{_variables()} {program}", asked))
    return found


def _theirs(place: reach.Place, hot: Target) -> list[tuple[int, float, float]]:
    recipe = next(t.recipe for t in place.plan.targets if t.name == hot.name)
    hub = f"{place.plan.settings.paths.hub_cache}/hub/models--{recipe.model.replace('/', '--')}"
    commit = _on_host(place, f"ls {hub}/snapshots", b"").split()[0]
    lines = "\n".join(json.dumps({"prompt": text}) for text in _prompts())
    program = [f"{VENV}/vllm", "bench", "serve", "--backend", "openai-chat"]
    program += ["--base-url", hot.engine_url or hot.url, "--endpoint", "/v1/chat/completions"]
    program += ["--model", hot.model, "--tokenizer", f"{hub}/snapshots/{commit}"]
    program += ["--dataset-name", "custom", "--dataset-path", f"{FOLDER}/prompts.jsonl"]
    program += ["--custom-output-len", str(TOKENS), "--num-prompts", str(len(SHAPES))]
    program += ["--max-concurrency", "1", "--ignore-eos", "--temperature", "0", "--seed", "0"]
    program += ["--skip-chat-template", "--disable-shuffle"]
    program += ["--save-result", "--save-detailed", "--result-dir", FOLDER]
    program += ["--result-filename", "result.json"]
    script = (
        f"cat > {FOLDER}/prompts.jsonl && cd {FOLDER} && "
        f"{_variables()} {shlex.join(program)} >{FOLDER}/log 2>&1 || tail -5 {FOLDER}/log >&2; "
        f"cat {FOLDER}/result.json"
    )
    return _read(json.loads(_on_host(place, script, lines.encode())))


def _variables() -> str:
    return " ".join(f"{key}={value}" for key, value in ENVIRONMENT.items())


def _read(result: dict[str, Any]) -> list[tuple[int, float, float]]:
    rows = zip(result["output_lens"], result["ttfts"], result["itls"], strict=True)
    return [(tokens, first, first + sum(between)) for tokens, first, between in rows]


def _row(name: str, ours: list[float], theirs: list[float], scale: float = 1) -> bool:
    """Medians with the middle half: a machine that is busy otherwise holds single answers back."""
    halves = [quantiles(values, n=4) for values in (ours, theirs)]
    agree = max(halves[0][0], halves[1][0]) <= min(halves[0][2], halves[1][2])
    figures = "   ".join(
        f"{who} {median(values) * scale:7.1f} ({low * scale:.1f} to {high * scale:.1f})"
        for who, values, (low, _, high) in zip(
            ("ours", "vLLM's"), (ours, theirs), halves, strict=True
        )
    )
    print(f"{name:<28} {figures}   {'agree' if agree else 'DIFFER'}")
    return agree


if __name__ == "__main__":
    sys.exit(main())
