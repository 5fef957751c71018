"""Steps that ask the gateway, and that measure how fast the engine answers."""

from __future__ import annotations

import json
import shlex
import subprocess
import time

from lab.carry.steps.run import ON_HOST, VENV, Figures, Run, StepFailure, figures
from lab.carry.steps.serving import SITE

#: What `vllm bench serve` imports and the engine's environment lacks: parts of `vllm[bench]`, as
#: this machine has them.
_BENCH = ("pandas", "dateutil", "six.py")


def sense(run: Run) -> Figures:
    """Right answers, asked for once more by the host's own program."""
    began = time.monotonic()
    output = run.on_host(f"{ON_HOST} sense")
    return {"seconds": time.monotonic() - began, "said": output.strip().splitlines()[-6:]}


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
    run.make_hot(run.options.model)
    output = run.do(
        "lockstep", "bench", "run", run.host, "--inventory", run.options.inventory, "--suite",
        "decode", "--quick", "--repeat", "3", "--tokens", "128",
        "--output", "/tmp/whole-run-bench.json", ok=(0, 2),
    )  # fmt: skip
    return {"said": [line.rstrip() for line in output.splitlines() if line.strip()][-12:]}


def ruler(run: Run) -> Figures:
    """Lockstep's client and `vllm bench serve` in turn, on the host, at 1 and 8 streams.

    The engine's environment has no pandas, which the second one needs. This machine's own is in
    PYTHONPATH for this command.
    """
    run.make_hot(run.options.model)
    archive = run.out / "archive.tar"
    run.machine(
        "tar", "-C", str(run.checkout), "-cf", str(archive), "lockstep", "benchmarks", "catalogue"
    )
    if not run.options.here:
        site = run.machine("python3", "-c", SITE).strip()
        run.machine("tar", "-C", site, "-rf", str(archive), *_BENCH)
    with archive.open("rb") as file:
        subprocess.run(
            run.command(["lockstep", "lab", "ssh", run.host, "--", "mkdir -p r && tar -x -C r"]),
            stdin=file, check=True, timeout=60, **run.place(),
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
