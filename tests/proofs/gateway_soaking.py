"""Requests of four clients for random models through the gateways of two hosts, faults among them.

    python tests/proofs/gateway_soaking.py --requests 1000 --seed 1 --record FILE

The line of each fault is in a file beside FILE.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

sys.path.append(str(Path(__file__).parents[1] / "helpers/gateway"))

import faults
import runner
import soaking
from gateway_proof import Proof, ThrownFault
from stack import SWITCH, Host, Stack

from lab.host import connection, network

PORT = 8090
#: Of 1,000 requests.
FAULTS = 30
UNIT = "lockstep-gateway.service"
NEEDLE = "/run/needle"
#: So long after a fault its effects may come, seconds: TCP's own pauses after a cable, a restart.
GRACE_S = 20.0
WEIGHTS = "/data/models/huggingface/hub"
_ASIDE = (
    f"cd {WEIGHTS}; for d in models--*; do mv $d away-$d; done; sleep 5;"
    " for d in away-models--*; do mv $d ${d#away-}; done"
)


@dataclass(frozen=True)
class Fault:
    """A kind of fault.

    Attributes:
        name: Name in the counts.
        command: Command that root runs on the host.
        knobs: Knobs of the next engine there, for some seconds.
        cuts: Whether it may break an answer off.
    """

    name: str
    command: str = ""
    knobs: Mapping[str, object] = field(default_factory=dict)
    cuts: bool = False


_KILLED = next(fault for fault in faults.FAULTS if fault.name == "engine killed")
KINDS = (
    Fault("engine killed", _KILLED.command, cuts=True),
    Fault("gateway killed", f"systemctl kill -s KILL {UNIT}", cuts=True),
    Fault("cable out", cuts=True),
    Fault("no memory for a switch", cuts=True),
    Fault("no weights for a switch", _ASIDE),
    Fault("crash while loading", knobs={"crash_while_loading": True}),
    Fault("switch by an operator", cuts=True),
    Fault("switch to none by an operator", cuts=True),
    Fault("client hangs up"),
)


class Site:
    """The lab's two hosts: faults there, and rules for them.

    Args:
        trial: A trial on a lab after `prepare_gateways`.
        proof: Its clients.
        count: Number of faults.
    """

    def __init__(self, trial: runner.Trial[runner.Run], proof: Proof, count: int) -> None:
        self._stack, self._proof, self._trial = trial.stack, proof, trial
        self._kinds = list(KINDS) * -(-count // len(KINDS))
        trial.chance("faults").shuffle(self._kinds)

    @contextmanager
    def watch_hosts(self) -> Iterator[None]:
        """Watch both hosts for two engines at a time; search for keys at the end."""
        violations = self._trial.violations
        with ExitStack() as exits:
            watchers = [
                exits.enter_context(soaking.Watcher(host, violations)) for host in self._stack.hosts
            ]
            yield
        self._trial.notes += [watcher.report() for watcher in watchers]
        for host in self._stack.hosts:
            for place, command in PLACES.items():
                violations += _held_by(host, place, command)

    def throw(self, number: int, begin: Callable[[str, str, bool], ThrownFault]) -> None:
        """Make the fault of a number; see `Proof.run`."""
        seed = self._trial.chance("fault", number)
        kind, host = self._kinds[number], seed.choice(self._stack.hosts)
        begin(kind.name, host.name, kind.cuts)
        self._make(kind, host, seed)
        for lab_host in self._stack.hosts:
            place = "process arguments"
            self._trial.violations += _held_by(lab_host, place, PLACES[place])

    def _make(self, kind: Fault, host: Host, seed: Random) -> None:
        if kind.name == "client hangs up":
            self._proof.hang_up.release()
        elif kind.name == "cable out":
            self._stack.lab("cut", host.name)
            # How long it lasts is a part of the fault.
            time.sleep(seed.uniform(2, 8))
            self._stack.lab("mend", host.name)
        elif kind.name == "no memory for a switch":
            short = seed.choice((50.0, 80.0))
            self._stack.memory(host, short)
            time.sleep(seed.uniform(3, 8))
            self._stack.memory(host)
        elif kind.name.startswith("switch"):
            model = "none" if "none" in kind.name else seed.choice(("qwen", "mistral"))
            host.run(f"{SWITCH} {model} --wait")
        elif kind.knobs:
            host.root(faults.put_knobs({**faults.QUICK, **kind.knobs}))
            time.sleep(seed.uniform(4, 8))
            host.root(faults.put_knobs(faults.QUICK))
        else:
            host.run(f"sudo -n sh -c {shlex.quote(kind.command)}")


#: Where no key may be.
PLACES = {
    "the journal": "journalctl --no-pager --all -o export",
    "process arguments": "cat /proc/[0-9]*/cmdline",
    "units": "systemctl show '*.service'; systemctl cat '*.service'",
    "logs": "find /var/log /var/lib/lockstep* -type f -size -4M -exec cat {} +",
    "the page": f"curl -fsS 127.0.0.1:{PORT}/",
    "the facts": f"curl -fsS 127.0.0.1:{PORT}/status",
    "the metrics": f"curl -fsS 127.0.0.1:{PORT}/metrics",
}


def _held_by(host: Host, place: str, command: str) -> list[str]:
    """Search the host for keys on the host itself, so that no argument has them."""
    search = f"{{ {command}; }} 2>/dev/null | grep -a -c -F -f {NEEDLE} || true"
    match_count = host.run(f"sudo -n sh -c {shlex.quote(search)}").out.strip()
    return [] if match_count == "0" else [f"{host.name}: a key is in {place}: {match_count!r}"]


# The lab


def inventory(stack: Stack) -> Path:
    """Two peered gateways that switch on request; `other` is a model of spark2 alone."""
    short = {"start_timeout_s": soaking.START_TIMEOUT_S}
    models = {"qwen": {**short, "aliases": ("coder",)}, "mistral": short}
    recipe = "qwen3.6-35b-a3b-prismaquant-dflash-k3"
    more = {"served_model_name": "lab/other"}
    other_model = {
        "recipe": recipe,
        "unit": "vllm-other",
        "port": 30005,
        "overrides": more,
        **short,
    }
    gateway = {
        **{"bind": "0.0.0.0", "plain": True, "swap_on_request": True, "least_hot_s": 1},
        **{"keepalive_s": 1, "peers": ("spark1", "spark2")},
    }
    return stack.inventory(
        "gateway",
        models=models,
        spark2__models={**models, "other": other_model},
        gateway=gateway,
        **{f"spark{n}__fabric_address": f"10.77.0.{110 + n}" for n in (1, 2)},
    )


@contextmanager
def prepare_gateways(stack: Stack) -> Iterator[tuple[list[str], dict[str, set[str]]]]:
    """Deploy, make keys of two persons, and let engines load fast; all gone afterwards.

    Gives the keys, and the engines that may answer for each name.
    """
    for host in stack.hosts:
        # At this address the gateways speak to each other; at the other one clients come.
        address = f"10.77.0.{110 + int(host.name[-1])}/24"
        host.root(f"ip address replace {address} dev $(ip -o route get 10.77.0.1 | cut -d' ' -f3)")
    path = inventory(stack)
    stack.good_deploy(inventory=path)
    keys = [a_key(stack, path, name) for name in ("anna", "ben")]
    for host in stack.hosts:
        host.root(faults.put_knobs(faults.QUICK))
        run_with_secret(host, f"sudo -n sh -c 'umask 077; cat > {NEEDLE}'", "\n".join(keys) + "\n")
    try:
        yield keys, _engines(stack)
    finally:
        for host in stack.hosts:
            host.root(f"rm -f {NEEDLE}")
            faults.clear_knobs(host)
        for name in ("anna", "ben"):
            end_key(stack, path, name)


def _engines(stack: Stack) -> dict[str, set[str]]:
    """Name in a request → the names that its engines give themselves."""
    engines_by_name: dict[str, set[str]] = {}
    for host in stack.hosts:
        models = json.loads(host.root("cat /etc/lockstep/models.json"))["models"]
        for name in ("qwen", "mistral", "other"):
            if name in models:
                engine = "sglang" if name == "mistral" else "vllm"
                engines_by_name.setdefault(name, set()).add(
                    f"{engine} {models[name]['served_name']}"
                )
    names = {**engines_by_name, "coder": engines_by_name["qwen"]}
    return {**names, "auto": set().union(*engines_by_name.values())}


def a_key(stack: Stack, path: Path, name: str) -> str:
    """A new key of a person on every host."""
    end_key(stack, path, name)
    answer = stack.lockstep("key add", name, inventory=path)
    assert answer.code == 0, answer.text
    return answer.out.strip()


def end_key(stack: Stack, path: Path, name: str) -> None:
    """Revoke a person's key; does nothing without one."""
    stack.lockstep("key revoke", name, inventory=path)


def run_with_secret(host: Host, command: str, text: str) -> None:
    """Run a command of the operator with a secret on its standard input."""
    description = connection.load(host.lab)
    argv = connection.ssh_command(description, host.name, [command])
    where = f"--net={network.NAMESPACES / description.namespace}"
    subprocess.run(["nsenter", where, *argv], input=text, text=True, check=True)


def prove(trial: runner.Trial[runner.Run]) -> None:
    """Send the requests, with faults among them."""
    stack, options = trial.stack, trial.options
    description = connection.load(stack.name)
    with prepare_gateways(stack) as (keys, engines):
        addresses = {host.name: (host.address, PORT) for host in description.hosts}
        proof = Proof(
            addresses,
            keys,
            engines,
            options.seed,
            GRACE_S,
            lambda: network.enter(description.namespace),
        )
        count = max(1, round(options.requests * FAULTS / 1000))
        site = Site(trial, proof, count)
        try:
            with site.watch_hosts():
                proof.run(
                    options.requests,
                    count,
                    site.throw,
                    trial.record,
                    lambda: print(proof.report().splitlines()[0], flush=True),
                )
        finally:
            trial.notes.append(proof.report())
            trial.violations += proof.violations


PROOF = runner.Proof(__doc__, "gateway-soak", None, prove, options={"requests": 1000})

if __name__ == "__main__":
    sys.exit(PROOF.main())
