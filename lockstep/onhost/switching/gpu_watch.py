"""Faults of the GPU, checked each minute by the wedge watch: hot, slow, or shared.

gpu-hot: heat or the power supply holds the clock down, at two looks in a row.

gpu-slow: the hot model makes less than 70 % of its accepted speed, at less power than it took then,
at two looks in a row. A Spark whose firmware holds it down shows this: 611 to 702 MHz and 13 to 14
W under load, which a reboot does not cure, and a minute without mains does (reports of 2026-07 and
2026-08, docs/gpu.md). An engine that makes no token at all is left to the wedge watch.

gpu-cap: the clock is above its cap, and a new start of the cap's unit did not help.

gpu-foreign: a foreign engine holds GPU memory while a model of ours is up, or any foreign program
holds much of it. No gate precedes its start, and the memory watch would end our model.

It also reports a boot that was cut off under a model, until somebody switches: a Spark that turns
itself off leaves no reason.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from lockstep.onhost.core import clock, config, errors, event_lines, layout, runner
from lockstep.onhost.engine import gpu_holders, openai_api
from lockstep.onhost.records import accepted_speed, models_by_boot, watch_findings
from lockstep.onhost.system import gpu_sensors
from lockstep.onhost.systemd import units

#: Code of a foreign engine beside ours.
FOREIGN = "gpu-foreign"
SLOW_SHARE = 0.7
# A GPU that decodes shows more.
BUSY = 90.0
# A driver reports a slow-down also while it changes the clock.
AGAIN_S, MEASURE_S = 2.0, 5.0
# Forms of the kernel's last lines (reports of operators, 2026-05 to 2026-09); first match wins.
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
class GpuState:
    """One look at the GPU of one host."""

    host: config.HostConfig
    paths: layout.Paths

    def check_and_record(self, hot: config.Model | None) -> None:
        """Look, restore a lost cap, and replace the record.

        Args:
            hot: The model that is hot and answers on this host, if any.
        """
        earlier_record = watch_findings.load(self.paths).gpu
        now = gpu_sensors.read_gpu()
        verdicts = {
            "gpu-cap": self._restore_lost_cap(now),
            "gpu-hot": self._heat_finding(now),
            FOREIGN: self._foreign_gpu_holders(),
        }
        slow = earlier_record.slow
        speed = self._model_slowness_reason(hot, now) if hot and not verdicts["gpu-hot"] else None
        # Without a measurement, as while nothing is asked, the count stays.
        if speed is not None:
            slow = slow + 1 if speed else 0
        if slow >= 2:
            verdicts["gpu-slow"] = speed or earlier_record.findings.get("gpu-slow")
        findings = {code: finding for code, finding in verdicts.items() if finding}
        for code in findings.keys() - earlier_record.findings.keys():
            write_to_journal(f"{code}: {findings[code]}")
        for code in earlier_record.findings.keys() - findings.keys():
            write_to_journal(f"{code} is over")
        last_boot = self._last_boot_finding(earlier_record.last_boot)
        watch_findings.save(self.paths, watch_findings.GpuRecord(findings, slow, last_boot))

    def _last_boot_finding(self, earlier_text: str | None) -> str | None:
        cut_off = models_by_boot.cut_off_boot(self.paths)
        present = models_by_boot.boot_id(self.paths)
        if cut_off is None or models_by_boot.load(self.paths).switched_in == present:
            return None
        # The journal of that boot does not change, so one reading is enough.
        end_time = time.localtime(cut_off.began + cut_off.duration_s)
        return earlier_text or (
            f"cut off at {time.strftime('%Y-%m-%d %H:%M', end_time)} while {cut_off.model} was "
            f"{cut_off.phase}: {_boot_end_text(cut_off.id)} (`lockstep help gpu`)"
        )

    def _restore_lost_cap(self, now: gpu_sensors.GpuReading) -> str | None:
        """Restore a lost cap; return the fault if that does not help."""
        most = self.host.max_clock_mhz
        if not now.is_above_cap(most):
            return None
        write_to_journal(
            f"the GPU runs at {now.clock_mhz:.0f} MHz, its cap of {most} MHz is lost: set again"
        )
        is_restarted = units.try_to_control("restart", gpu_sensors.CAP_UNIT)
        clock.sleep(AGAIN_S)
        later_reading = gpu_sensors.read_gpu()
        if is_restarted and not later_reading.is_above_cap(most):
            return None
        return (
            f"the clock is {(later_reading.clock_mhz or now.clock_mhz):.0f} MHz, above its cap of "
            f"{most} MHz. Remedy: see journalctl -u {gpu_sensors.CAP_UNIT}"
        )

    def _heat_finding(self, now: gpu_sensors.GpuReading) -> str | None:
        if not now.heat_causes:
            return None
        clock.sleep(AGAIN_S)
        later_reading = gpu_sensors.read_gpu()
        still = [words for words in later_reading.heat_causes if words in now.heat_causes]
        if not still:
            return None
        reading_texts = [
            f"{value:.0f} {unit}"
            for value, unit in (
                (later_reading.temperature_c, "°C"),
                (later_reading.clock_mhz, "MHz"),
                (later_reading.power_w, "W"),
            )
            if value is not None
        ]
        return (
            f"the GPU is held down ({', '.join(still)}) at {', '.join(reading_texts)}. Remedy: "
            "free the "
            "air inlets, look at the power supply, or cap the clock: gpu.max_clock_mhz "
            "(`lockstep help gpu`)"
        )

    def _foreign_gpu_holders(self) -> str | None:
        """Return the foreign holders of GPU memory while a model of ours is up."""
        names = {model.unit: model.name for model in self.host.models.values()}
        unit_states = units.units_by_name(names)
        up = [name for unit, name in names.items() if unit_states[unit].state in ("hot", "loading")]
        if not up:
            return None
        try:
            holders = gpu_holders.foreign_holders(self.host, self.paths)
        except errors.Problem as problem:
            write_to_journal(str(problem))
            return None
        notable_holders = [holder for holder in holders if holder.is_worth_report]
        if not notable_holders:
            return None
        holders_text = "; ".join(holder.memory_sentence for holder in notable_holders)
        remedies = "; ".join(holder.remedy for holder in notable_holders)
        return f"beside {up[0]}, {holders_text}. Remedy: {remedies}"

    def _model_slowness_reason(
        self, model: config.Model, now: gpu_sensors.GpuReading
    ) -> str | None:
        """Return why the model counts as slow, "" if it does not, None if that is unknown."""
        accepted_record = accepted_speed.load(self.paths).get(model.name, {})
        same_settings = ("recipe", model.recipe), ("image", model.image)
        cap = accepted_record.get("max_clock_mhz") == self.host.max_clock_mhz
        if not (
            accepted_record.get("power_w")
            and cap
            and all(accepted_record[key] == is_ for key, is_ in same_settings)
        ):
            return None
        if now.utilization is None or now.utilization < BUSY:
            return None
        with gpu_sensors.sample_power_and_clock() as band:
            rate = self._token_rate(model)
        if rate is None or not band.power_w:
            return None
        band_record, least = band.as_json(), accepted_record["power_w"]["low"]
        watts, speed = band_record["power_w"]["median"], accepted_record["decode_tok_s"]
        if rate >= SLOW_SHARE * speed or watts >= least:
            return ""
        clock = (
            f" and {band_record['clock_mhz']['median']:.0f} MHz"
            if "clock_mhz" in band_record
            else ""
        )
        return (
            f"{model.name} makes {rate:.1f} tok/s, accepted were {speed:.1f}, at {watts:.0f} W"
            f"{clock}, accepted were {least:.0f} to {accepted_record['power_w']['high']:.0f} W. "
            f"{UNPLUG}"
        )

    def _token_rate(self, model: config.Model) -> float | None:
        """Return tok/s of all requests together; None if they did not run all the while."""
        engine_model = model.at_engine_address
        try:
            key = openai_api.api_key(engine_model)
            first, began = openai_api.counters(engine_model, key), clock.now()
            clock.sleep(MEASURE_S)
            last, seconds = openai_api.counters(engine_model, key), clock.now() - began
        except openai_api.NotReady:
            return None
        if not (first and last and first.outstanding and last.outstanding):
            return None
        if last.rate is not None:
            return last.rate or None
        # The wedge watch judges an engine without any token.
        token_count = (last.generated_tokens or 0) - (first.generated_tokens or 0)
        return token_count / seconds if token_count else None


def _boot_end_text(boot: str) -> str:
    """Describe the end of a boot, by the last lines of its kernel."""
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


def write_to_journal(line: str) -> None:
    """Write one line to the journal."""
    event_lines.say(f"lockstep gpu: {line}")
