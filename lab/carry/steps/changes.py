"""Switches, deploys that change something, drift, and the page of evidence."""

from __future__ import annotations

import json
import re
import time

from lab.carry.steps.run import ON_HOST, SWITCH, Figures, Run, StepFailure, figures

#: A file of the deploy's in which a line more does no harm.
DRIFTED = "/etc/logrotate.d/lockstep"


def switches(run: Run) -> Figures:
    """To another model and back, ten times or as often as there is time; the GPU's memory."""
    run.make_hot(run.options.model)
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


def flags_changed(run: Run) -> Figures:
    """A deploy changes the engine's flags while clients ask."""
    run.make_hot(run.options.model)
    run.on_host("sudo rm -f /run/whole-run-stop")
    clients = run.begin_probe("busy", run.options.model, "280")
    time.sleep(2)
    changed_models = {run.options.model: {"overrides": {"max_num_seqs": 8}}}
    figures_of_deploy = run.deploy(run.changed_inventory(changed_models))
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
    for path in (run.checkout / "measured/whole-run/evidence").glob("*.json"):
        (run.out / "evidence.json").write_bytes(path.read_bytes())
    return {"seconds": time.monotonic() - began, "said": output.strip().splitlines()[-6:]}
