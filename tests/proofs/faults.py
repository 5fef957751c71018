"""Faults that are thrown into switches: the commands that make each on a host and clear it away."""

import json
import random
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from stack import Host

KNOBS = "/run/unified-memory"
ENGINES = ("vllm", "sglang")
#: So that a switch takes seconds; a fault adds to these.
QUICK = {"load_seconds": 0.2, "stop_seconds": 0.1}
LOGS = "/var/log/lockstep"


@dataclass(frozen=True)
class Fault:
    """One kind of fault.

    Attributes:
        name: Name in the counts.
        knobs: Knobs of the stand-in engines before the switch.
        command: Shell text that root runs `delay` seconds after the switch began.
        deed: At that moment instead: "power" is cut, the "client"'s connection is killed, a "rival"
            switches, or "memory" falls below the minimum of a hot model and rises again.
        slow: Takes a minute; chosen seldom.
        kills: May leave no model hot without a failed switch, for the engine itself was killed.
    """

    name: str
    knobs: dict[str, object] = field(default_factory=dict)
    command: str = ""
    deed: str = ""
    slow: bool = False
    kills: bool = False


_ENGINE = "pgrep -f 'python.* /[a-z/]*/(vllm|sglang) serve'"

FAULTS = (
    Fault("crash while loading", {"crash_while_loading": True}, kills=True),
    Fault("exit 0 while loading", {"crash_while_loading": True, "exit_code": 0}, kills=True),
    Fault("crash after ready", {"crash_after": 2.0}, kills=True),
    Fault("never ready", {"never_ready": True}),
    Fault("wedged", {"is_wedged": True}),
    Fault("answers no text", {"empty_text": True}),
    Fault("talks nonsense", {"corruption": "salad"}),
    Fault("talks nonsense under load", {"corruption": "swapped"}),
    Fault("loads through the page cache", {"streamed_gib": 90.0, "blocks_gib": 8.0}),
    Fault("memory lingers", {"memory_lingers": 3.0}),
    Fault("deaf to SIGTERM", {"ignore_sigterm": True}, slow=True),
    Fault(
        "switch killed", command="systemctl kill --kill-whom=main -s KILL lockstep-switch.service"
    ),
    Fault("switch stopped", command="systemctl stop lockstep-switch.service"),
    Fault("engine killed", command=f"{_ENGINE} | xargs -r kill -9", kills=True),
    Fault(
        "docker client killed", command="pkill -9 -f '^/usr/bin/docker run .* serve'", kills=True
    ),
    Fault(
        "docker restarted",
        # Docker's unit may start three times in a minute; that it then stays down is no fault here.
        command="systemctl reset-failed docker.service; systemctl restart docker.service",
        kills=True,
    ),
    Fault(
        "disk full",
        # The switch's own log; the disk of the machine below is not to be filled.
        command=f"mount -t tmpfs -o size=4k full {LOGS}; dd if=/dev/zero of={LOGS}/x bs=4k count=9"
        f" 2>/dev/null; sleep 3; umount -l {LOGS}",
    ),
    Fault("another unit started", command="systemctl start --no-block {unit}", kills=True),
    Fault("connection lost", deed="client"),
    Fault("two clients", deed="rival"),
    Fault("memory falls", deed="memory", kills=True),
    Fault("power cut", deed="power", slow=True, kills=True),
)


def random_fault(seed: random.Random, slow: bool) -> Fault | None:
    """The fault of one round: none in more than half of them, the slow kinds seldom."""
    if seed.random() < 0.56:
        return None
    kinds = [fault for fault in FAULTS if not fault.slow]
    if slow and seed.random() < 0.05:
        kinds = [fault for fault in FAULTS if fault.slow]
    return seed.choice(kinds)


def put_knobs(knobs: Mapping[str, object], engines: Iterable[str] = ENGINES) -> str:
    """Shell text that turns the knobs of the stand-in engines."""
    text = shlex.quote(json.dumps(dict(knobs)))
    return "; ".join(f"echo {text} > {KNOBS}/standin-{engine}.json" for engine in engines)


def set_knobs(fault: Fault | None, model: str) -> str:
    """Shell text that prepares the stand-in engines: the model's own has the fault."""
    faulty = {"qwen": ("vllm",), "none": ENGINES}.get(model, ("sglang",)) if fault else ()
    own = fault.knobs if fault else {}
    return "; ".join(
        put_knobs({**QUICK, **(own if engine in faulty else {})}, (engine,)) for engine in ENGINES
    )


def clear_knobs(host: Host) -> None:
    """Forget all knobs, and make no model hot."""
    host.root(f"rm -f {KNOBS}/standin-*.json")
    host.switch("none")


def clear() -> str:
    """Shell text that removes a fault, except its effect on the engines."""
    return f"while mountpoint -q {LOGS}; do umount -l {LOGS}; done; {set_knobs(None, 'none')}"
