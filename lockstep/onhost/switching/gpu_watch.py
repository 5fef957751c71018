"""What is wrong with the GPU, looked for each minute by the wedge watch: hot, slow, or shared.

gpu-hot: heat or the power supply holds the clock down, at two looks in a row.
gpu-slow: the hot model makes less than 70 % of its accepted speed, at less power than it took then,
at two looks in a row. So looks a Spark whose firmware holds it down: 611 to 702 MHz and 13 to 14 W
under load, which a reboot does not cure, and a minute without mains does (reports of 2026-07 and
2026-08, docs/gpu.md). An engine that makes no token at all is the wedge watch's.
gpu-cap: the clock is above its cap, and a new start of the cap's unit did not help.
gpu-foreign: somebody else's engine holds the GPU's memory while a model of ours is up, or anybody
much of it. No gate is before its start, and the memory floor would end ours.

Besides, it tells of a boot that was cut off under a model, until somebody switches: a Spark that
turns itself off says nothing of why.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import asdict, dataclass, field

from lockstep.onhost.core import atomic, clock, config, errors, layout, output, runner
from lockstep.onhost.engine import gpu_holders, openai_api
from lockstep.onhost.records import accepted, boots
from lockstep.onhost.system import gpu
from lockstep.onhost.systemd import units

#: Code of a foreign engine beside ours.
FOREIGN = "gpu-foreign"
SLOW_SHARE = 0.7
# A GPU that decodes shows more.
BUSY = 90.0
# A driver names a slow-down also while it changes the clock.
AGAIN_S, MEASURE_S = 2.0, 5.0
# What the kernel's last lines look like (reports of operators, 2026-05 to 2026-09); first match.
_SIGNS = (
    (re.compile(r"critical temperature|thermal.*shut", re.IGNORECASE), "it looks like heat"),
    (
        re.compile(r"NV_ERR_NO_MEMORY|Out of memory|oom-kill"),
        "it looks like memory that ran out, and a host that froze",
    ),
    (re.compile(r"Kernel panic|Xid \("), "it looks like the driver or the kernel"),
)
UNPLUG = (
    "Remedy: shut the Spark down and unplug the mains for a minute. A reboot does not help "
    "(`lockstep help gpu`)"
)


@dataclass
class Record:
    """What the watch found, of this boot.

    Attributes:
        findings: Code → what is wrong, with the remedy.
        slow: Looks in a row at which the model was too slow.
        last_boot: How the boot before this one was cut off under a model; None: it was not, or
            somebody has switched since.
    """

    findings: dict[str, str] = field(default_factory=dict)
    slow: int = 0
    last_boot: str | None = None


def load(paths: layout.Paths) -> Record:
    """The record; an empty one where there is none that can be read."""
    try:
        return Record(**json.loads(paths.gpu_record.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return Record()


def lines(paths: layout.Paths) -> list[str]:
    """The findings, each with its code."""
    return [f"{code}: {said}" for code, said in sorted(load(paths).findings.items())]


@dataclass
class Look:
    """One look at the GPU of one host."""

    host: config.Host
    paths: layout.Paths

    def take(self, hot: config.Target | None) -> None:
        """Look, act where the cap is lost, and replace the record.

        Args:
            hot: The model that is hot and answers on this host, if any.
        """
        before = load(self.paths)
        now = gpu.look()
        found = {
            "gpu-cap": self._cap(now),
            "gpu-hot": self._heat(now),
            FOREIGN: self._foreign(),
        }
        slow = before.slow
        speed = self._slow(hot, now) if hot and not found["gpu-hot"] else None
        # What cannot be told, as while nothing is asked, changes nothing.
        if speed is not None:
            slow = slow + 1 if speed else 0
        if slow >= 2:
            found["gpu-slow"] = speed or before.findings.get("gpu-slow")
        findings = {code: said for code, said in found.items() if said}
        for code in findings.keys() - before.findings.keys():
            tell(f"{code}: {findings[code]}")
        for code in before.findings.keys() - findings.keys():
            tell(f"{code} is over")
        record = Record(findings, slow, self._last_boot(before.last_boot))
        atomic.write_json(self.paths.gpu_record, asdict(record))

    def _last_boot(self, told: str | None) -> str | None:
        cut_off = boots.cut_off(self.paths)
        present = boots.boot_id(self.paths)
        if cut_off is None or boots.load(self.paths).switched_in == present:
            return None
        # The journal of that boot says tomorrow what it says today.
        ended = time.localtime(cut_off.began + cut_off.lasted)
        return told or (
            f"cut off at {time.strftime('%Y-%m-%d %H:%M', ended)} while {cut_off.target} was "
            f"{cut_off.phase}: {_kernel_said(cut_off.id)} (`lockstep help gpu`)"
        )

    def _cap(self, now: gpu.Reading) -> str | None:
        """Bring the cap back into force where it is lost; what is wrong when that does not help."""
        most = self.host.max_clock_mhz
        if not now.above(most):
            return None
        tell(f"the GPU runs at {now.clock_mhz:.0f} MHz, its cap of {most} MHz is lost: set again")
        done = runner.run(["systemctl", "restart", gpu.CAP_UNIT], timeout=120)
        clock.sleep(AGAIN_S)
        after = gpu.look()
        if done.returncode == 0 and not after.above(most):
            return None
        return (
            f"the clock is {(after.clock_mhz or now.clock_mhz):.0f} MHz, above its cap of "
            f"{most} MHz. Remedy: see journalctl -u {gpu.CAP_UNIT}"
        )

    def _heat(self, now: gpu.Reading) -> str | None:
        if not now.heat:
            return None
        clock.sleep(AGAIN_S)
        after = gpu.look()
        still = [words for words in after.heat if words in now.heat]
        if not still:
            return None
        shown = [
            f"{value:.0f} {unit}"
            for value, unit in (
                (after.temperature_c, "°C"),
                (after.clock_mhz, "MHz"),
                (after.power_w, "W"),
            )
            if value is not None
        ]
        return (
            f"the GPU is held down ({', '.join(still)}) at {', '.join(shown)}. Remedy: free the "
            "air inlets, look at the power supply, or cap the clock: gpu.max_clock_mhz "
            "(`lockstep help gpu`)"
        )

    def _foreign(self) -> str | None:
        """Who else holds the GPU's memory while a model of ours is up."""
        names = {target.unit: target.name for target in self.host.targets.values()}
        shown = units.show(names)
        up = [name for unit, name in names.items() if shown[unit].state in ("hot", "loading")]
        if not up:
            return None
        try:
            others = gpu_holders.foreign(self.host, self.paths)
        except errors.Problem as problem:
            tell(str(problem))
            return None
        told = [holder for holder in others if holder.matters]
        if not told:
            return None
        said = "; ".join(holder.words for holder in told)
        remedies = "; ".join(holder.remedy for holder in told)
        return f"beside {up[0]}, {said}. Remedy: {remedies}"

    def _slow(self, target: config.Target, now: gpu.Reading) -> str | None:
        """Why the model counts as slow, "" where it is not, None where that cannot be told."""
        known = accepted.load(self.paths).get(target.name, {})
        same = ("recipe", target.recipe), ("image", target.image)
        cap = known.get("max_clock_mhz") == self.host.max_clock_mhz
        if not (known.get("power_w") and cap and all(known[key] == is_ for key, is_ in same)):
            return None
        if now.utilization is None or now.utilization < BUSY:
            return None
        with gpu.sampled() as band:
            rate = self._rate(target)
        if rate is None or not band.power_w:
            return None
        found, least = band.as_json(), known["power_w"]["low"]
        watts, speed = found["power_w"]["median"], known["decode_tok_s"]
        if rate >= SLOW_SHARE * speed or watts >= least:
            return ""
        clock = f" and {found['clock_mhz']['median']:.0f} MHz" if "clock_mhz" in found else ""
        return (
            f"{target.name} makes {rate:.1f} tok/s, accepted were {speed:.1f}, at {watts:.0f} W"
            f"{clock}, accepted were {least:.0f} to {known['power_w']['high']:.0f} W. {UNPLUG}"
        )

    def _rate(self, target: config.Target) -> float | None:
        """tok/s of all requests together; None where they did not go on all the while."""
        asked = target.itself
        try:
            key = openai_api.api_key(asked)
            first, began = openai_api.counters(asked, key), clock.now()
            clock.sleep(MEASURE_S)
            last, seconds = openai_api.counters(asked, key), clock.now() - began
        except openai_api.NotReady:
            return None
        if not (first and last and first.outstanding and last.outstanding):
            return None
        if last.rate is not None:
            return last.rate or None
        # Of no token at all the wedge watch judges.
        made = (last.generated or 0) - (first.generated or 0)
        return made / seconds if made else None


def _kernel_said(boot: str) -> str:
    """What the end of a boot looks like, by the last lines of its kernel."""
    argv = ["journalctl", "--quiet", "--no-pager", "--dmesg", f"--boot={boot}", "--lines=200"]
    lines = runner.run([*argv, "--output=cat"], timeout=60).stdout.splitlines()
    for pattern, words in _SIGNS:
        line = next((line for line in reversed(lines) if pattern.search(line)), None)
        if line:
            return f"{words}. The kernel said: {line.strip()[:160]}"
    return (
        "the journal just ends, as after a power cut. Where nobody cut the power, it looks like "
        "heat or the power supply: cap the clock, and run sudo ./partnerdiag --field"
    )


def tell(line: str) -> None:
    """One line for the journal."""
    output.say(f"lockstep gpu: {line}")
