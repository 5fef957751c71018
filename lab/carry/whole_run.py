"""A whole run: from a wiped lab host to models that serve on this machine's GPUs, and their faults.

usage: python3 -m lab.carry.whole_run [--out FOLDER] [--seconds S] [--again] [STEP ...]

It runs in the folder of the parts of pack.sh, with vllm.tar.xz of benchmarks.cuda.parts beside
them, and needs only Python. Without STEP it does all steps that have not been done here;
OUT/whole_run.json says which have. So a machine that is lent for some minutes at a time takes it in
several calls. No step is begun that usually takes longer than what is left of --seconds. Each step
ends at its limit, and a step that fails ends no other, except those that need it.
OUT/whole_run.md is the page: a step is measured, failed, or not measured. --again repeats the steps
that are named.

The steps of a cluster need two GPUs, and a deploy for both:
`--hosts 2 --inventory inventories/lab_gpu_cluster.py`. Then the steps of one host can be done on
both at once, by a second call with `--host spark2` and a copy of OUT.

`--here` takes the lab that LOCKSTEP_LAB names, which is up, with the programs of this checkout and
without a GPU: `--inventory inventories/lab.py --model tiny --recipe tiny-qwen3 --port 8000
--second qwen`, and for the steps of a cluster `--inventory inventories/lab_cluster.py --hosts 2`.
So the program can be tried without a GPU.

exit codes: 0 all that was begun is measured, 1 a step failed, 2 wrong use
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lab.carry.steps import changes, cluster, faults, gpu, image, requests, serving
from lab.carry.steps.run import TOP, Figures, Run, StepFailure

#: Step: its function, its limit in seconds, its usual seconds, and steps that it needs.
STEPS: dict[str, tuple[Callable[[Run], Figures], int, int, tuple[str, ...]]] = {
    "assemble": (serving.assemble, 150, 30, ()),
    "train": (serving.train, 150, 20, ("assemble",)),
    "wheels": (serving.wheels, 200, 30, ("assemble",)),
    "up": (serving.up, 90, 10, ("wheels", "train")),
    "deploy": (serving.deploy, 400, 150, ("up",)),
    "about": (serving.about, 90, 25, ("deploy",)),
    "deploy-again": (serving.deploy_again, 90, 5, ("deploy",)),
    "diff": (serving.diff, 60, 4, ("deploy",)),
    "first-switch": (serving.first_switch, 200, 65, ("deploy",)),
    "sense": (requests.sense, 60, 8, ("first-switch",)),
    "chat": (requests.chat, 60, 2, ("first-switch",)),
    "stream": (requests.stream, 60, 2, ("first-switch",)),
    "messages": (requests.messages, 60, 2, ("first-switch",)),
    "smi": (gpu.smi, 60, 8, ("first-switch",)),
    "killed": (faults.engine_killed, 200, 50, ("first-switch",)),
    "flags-changed": (changes.flags_changed, 300, 60, ("first-switch",)),
    "rollback": (changes.rollback, 150, 40, ("flags-changed",)),
    "drift": (changes.drift, 150, 40, ("deploy",)),
    "cut-serving": (faults.cut_serving, 200, 60, ("first-switch",)),
    "memory-minimum": (faults.memory_minimum, 250, 80, ("first-switch",)),
    "cut-loading": (faults.cut_loading, 120, 40, ("first-switch",)),
    "gpu-full": (faults.gpu_full, 250, 120, ("first-switch",)),
    "embeddings": (requests.embeddings, 150, 40, ("deploy",)),
    "ruler": (requests.ruler, 150, 70, ("first-switch",)),
    "bench": (requests.bench, 150, 60, ("first-switch",)),
    "evidence": (changes.evidence, 60, 10, ("deploy",)),
    "frozen": (faults.frozen, 620, 280, ("first-switch",)),
    "switches": (changes.switches, 900, 100, ("first-switch",)),
    "container": (gpu.container, 300, 90, ("first-switch",)),
    "cluster-switch": (cluster.switch, 400, 120, ("deploy",)),
    "cluster-link": (cluster.link, 60, 5, ("cluster-switch",)),
    "cluster-sense": (cluster.sense, 60, 10, ("cluster-switch",)),
    "cluster-killed": (cluster.rank_killed, 400, 150, ("cluster-switch",)),
    "cluster-none": (cluster.none, 60, 10, ("cluster-switch",)),
    # Last, because they deploy one host alone, and members of a cluster must be alike.
    "image-push": (image.push, 300, 70, ("deploy",)),
    "image-recipe": (image.recipe, 500, 220, ("image-push",)),
}
#: Steps that make a lab on a machine with a GPU.
_TO_A_LAB = ("assemble", "train", "wheels", "up")
_OF_A_GPU = (
    "smi",
    "gpu-full",
    "memory-minimum",
    "sense",
    "embeddings",
    "container",
    "cluster-sense",
)
_OF_TWO_HOSTS = "cluster-"


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
    left_out = {*_TO_A_LAB, *_OF_A_GPU} if options.here else set()
    if options.hosts == 1:
        left_out |= {name for name in STEPS if name.startswith(_OF_TWO_HOSTS)}
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
    calls = "\n".join(f"    python3 -m lab.carry.whole_run {call}" for call in document["calls"])
    head = "| step | what | state | figures |\n|---|---|---|---|"
    return f"# A whole run, {document['date']}\n\n{calls}\n\n{head}\n" + "\n".join(rows) + "\n"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python3 -m lab.carry.whole_run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--parts", type=Path, default=TOP, help="folder of the parts")
    parser.add_argument("--out", type=Path, default=Path("/tmp/whole-run"), help="folder to write")
    parser.add_argument("--seconds", type=float, default=86400, help="time of this call")
    parser.add_argument("--again", action="store_true", help="repeat the named steps")
    parser.add_argument("--here", action="store_true", help="a lab that is up, without a GPU")
    parser.add_argument("--hosts", type=int, default=1, help="hosts, each with a GPU")
    parser.add_argument("--host", default="spark1", help="the host of most steps")
    parser.add_argument("--inventory", default="inventories/lab_gpu.py")
    parser.add_argument("--trained", type=Path, default=Path("/trained"), help="the trained model")
    parser.add_argument("--training", action="store_true", help="another program trains it now")
    parser.add_argument("--model", default="trained", help="the model of most steps")
    parser.add_argument("--port", type=int, default=8001, help="the port of its engine")
    parser.add_argument("--folder", default="trained-qwen3", help="its repository's name")
    parser.add_argument("--recipe", default="trained-qwen3-cuda", help="its recipe")
    parser.add_argument("--second", default="tiny", help="the model of the switches")
    parser.add_argument("--vectors", default="vectors", help="the model of the vectors")
    parser.add_argument("--pair", default="pair", help="the model of the cluster")
    parser.add_argument("--rounds", type=int, default=10, help="switches there and back")
    parser.add_argument("--hold", type=int, help="GiB of the GPU for somebody else (0.72 of it)")
    parser.add_argument("step", nargs="*", metavar="STEP", help=", ".join(STEPS))
    options = parser.parse_args()
    if unknown := set(options.step) - set(STEPS):
        parser.error(f"no such step: {', '.join(sorted(unknown))}")
    return options


if __name__ == "__main__":
    sys.exit(main())
