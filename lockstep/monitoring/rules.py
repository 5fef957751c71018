"""The alert rules of one host: what is wrong, for how long, what to do, and where to read on.

Each host judges itself, and of the hosts that it records only whether they are silent: so each
alert is raised once. A metric that is missing raises nothing but `MetricsStopped`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import yaml

from lockstep.files.managed_file import MARK
from lockstep.inventory.settings import Settings
from lockstep.onhost.facts.tls import SOON_DAYS
from lockstep.onhost.switching.switch_job import UNIT as SWITCH_UNIT

#: Seconds between two evaluations.
EVERY_S = 15
#: Where each alert has a section.
PAGE = "docs/monitoring.md"
#: The job by which Prometheus scrapes the hosts that it records.
TWIN_JOB = "twin"
_OURS = re.compile(r"\b(lockstep_\w+)(\{)?")
_DAY_S = 86400
# The wedge watch's restart is over by then: it is told, and the alert ends.
_TOLD_S = 300
_GIB = 1024**3

Severity = Literal["critical", "warning"]
#: What an alert is about. A switch silences `model`, a deploy also `host`.
Subject = Literal["model", "gpu", "host", "keeping", "twin"]


@dataclass(frozen=True)
class Alert:
    """One rule.

    Attributes:
        name: In Prometheus and in messages.
        expr: PromQL; each series that it yields is an alert.
        wait_s: How long it must hold, seconds.
        severity: "critical": somebody should look now.
        subject: What it is about, for silences.
        summary: A sentence, after the host's name and a colon.
        remedy: What to do, as sentences.
        host: Whom it is about, where that is another host.
    """

    name: str
    expr: str
    wait_s: int
    severity: Severity
    subject: Subject
    summary: str
    remedy: str
    host: str = ""

    @property
    def anchor(self) -> str:
        """Its section in `PAGE`."""
        return self.name.lower()


def alerts(settings: Settings) -> tuple[Alert, ...]:
    """What a host judges of itself.

    Args:
        settings: Of the host; thresholds are its own.
    """
    return (*_of_models(), *_of_gpu(settings), *_of_host(settings), *_of_keeping())


def _of_models() -> tuple[Alert, ...]:
    return (
        Alert(
            "HotModelGone",
            # A start of it may take half an hour, and that is no fault. What the wedge watch or
            # the memory floor did has an alert of its own.
            "lockstep_wanted_hot == 1 unless on (target) lockstep_hot_target == 1"
            " unless on (target) lockstep_loading_target == 1"
            " unless on (target) lockstep_engine_wedged == 1"
            " unless on (target) lockstep_memory_floor_ended == 1"
            " unless on () lockstep_switch_running == 1",
            120,
            "critical",
            "model",
            "{{ $labels.target }} was hot and is not any more. Nobody has stopped it.",
            "`switch.sh status` says how it ended, and `switch.sh {{ $labels.target }}` starts it.",
        ),
        Alert(
            "EngineWedged",
            "lockstep_engine_wedged == 1"
            f" or time() - lockstep_wedge_deed_timestamp_seconds < {_TOLD_S}",
            0,
            "critical",
            "model",
            "The engine of {{ $labels.target }} had requests and made no token.",
            "The wedge watch restarted it, or left it down after three restarts in an hour. "
            "`switch.sh status` says which.",
        ),
        Alert(
            "ModelTalksNonsense",
            "lockstep_sense_ok == 0",
            0,
            "critical",
            "model",
            "{{ $labels.target }} answers nonsense.",
            "Switch to another model, or back with `lockstep rollback`. "
            "`switch.sh status` has what was asked and what was answered.",
        ),
        Alert(
            "MemoryNearFloor",
            "max(lockstep_memory_available_bytes)"
            ' < 1.25 * max(lockstep_memory_floor_bytes{phase="serving"})'
            " unless on () lockstep_switch_running == 1",
            60,
            "warning",
            "model",
            "{{ $value | humanize1024 }}B of memory are available. "
            "Below the floor the engine is ended.",
            "Find what else holds memory, or give the model less by `overrides`.",
        ),
        Alert(
            "EndedByMemoryFloor",
            "lockstep_memory_floor_ended == 1",
            0,
            "critical",
            "model",
            "{{ $labels.target }} was ended before the host ran out of memory.",
            "`switch.sh status` says what is hot now. Give that model less by `overrides`, or "
            "find what else holds memory. Its next start ends this alert.",
        ),
        Alert(
            "EngineErrors",
            # A stopped engine breaks off the requests that it has: a switch does so on purpose.
            '(sum(increase(lockstep_gateway_refusals_total{reason="no answer"}[5m])) > 5'
            ' or sum(increase(vllm:request_success_total{finished_reason="error"}[5m])) > 5)'
            " unless on () max_over_time(lockstep_switch_running[10m]) == 1",
            60,
            "warning",
            "model",
            "The engine gave no answer to {{ $value | humanize }} requests in 5 minutes.",
            "`journalctl -u` of the model's unit has the engine's own words.",
        ),
    )


def _of_gpu(settings: Settings) -> tuple[Alert, ...]:
    cap = settings.gpu.max_clock_mhz
    return (
        Alert(
            "GpuHot",
            "lockstep_gpu_hot == 1",
            0,
            "warning",
            "gpu",
            "Heat or the power supply holds the GPU's clock down.",
            "Free the air inlets, look at the power supply, or cap the clock by "
            "`gpu.max_clock_mhz`.",
        ),
        Alert(
            "GpuSlow",
            "lockstep_gpu_slow == 1",
            0,
            "warning",
            "gpu",
            "The model is much slower than when it was accepted, and the GPU takes little power.",
            "Shut the Spark down and unplug the mains for a minute. A reboot does not help.",
        ),
        *(
            ()
            if cap is None
            else (
                Alert(
                    "ClockCapLost",
                    "lockstep_gpu_clock_cap_held == 0",
                    # The wedge watch looks each minute, and sets it again.
                    180,
                    "warning",
                    "gpu",
                    f"The GPU runs above its cap of {cap} MHz.",
                    "`journalctl -u lockstep-gpu-cap` says why the cap could not be set.",
                ),
            )
        ),
    )


def _of_host(settings: Settings) -> tuple[Alert, ...]:
    free = settings.expected.free_disk_gib
    return (
        Alert(
            "DiskFull",
            f"lockstep_disk_free_bytes < {free * _GIB:.0f}",
            300,
            "warning",
            "keeping",
            f"{{{{ $value | humanize1024 }}}}B of the models' disk are free, {free:g} GiB is the "
            "least.",
            "`lockstep gc` removes what no target needs.",
        ),
        Alert(
            "FailedUnit",
            # Whoever switches is told how that ends, and a model has alerts of its own.
            f'lockstep_failed_unit{{unit!~"{"|".join(_told_elsewhere(settings))}"}} == 1',
            60,
            "warning",
            "host",
            "{{ $labels.unit }} has failed.",
            "`journalctl -u {{ $labels.unit }}` says why.",
        ),
        Alert(
            "UncleanBoot",
            "lockstep_boot_unclean == 1",
            0,
            "critical",
            "host",
            "The boot before this one was cut off while a model was starting or hot.",
            "`switch.sh status` has the kernel's last words. The next switch ends this alert.",
        ),
        Alert(
            "MetricsStopped",
            "time() - lockstep_metrics_written_timestamp_seconds > 180"
            " or absent(lockstep_metrics_written_timestamp_seconds)",
            120,
            "warning",
            "host",
            "Lockstep's own figures have stopped, and with them most alerts of this host.",
            "`journalctl -u lockstep-metrics` says why.",
        ),
    )


def _told_elsewhere(settings: Settings) -> tuple[str, ...]:
    # A fallback has a unit of its own.
    models = (f"{target.unit}(-fallback)?.service" for target in settings.targets.values())
    return (SWITCH_UNIT, *models)


def _of_keeping() -> tuple[Alert, ...]:
    return (
        Alert(
            "Drift",
            'sum(lockstep_drift_differences{severity="error"}) > 0',
            600,
            "warning",
            "host",
            "The last comparison found {{ $value }} differences from what was deployed.",
            "`lockstep diff INVENTORY` names them, and a deploy puts most of them right.",
        ),
        Alert(
            "CertificateOld",
            f"lockstep_certificate_expiry_timestamp_seconds - time() < {SOON_DAYS * _DAY_S}",
            3600,
            "warning",
            "keeping",
            "The certificate {{ $labels.path }} ends in {{ $value | humanizeDuration }}.",
            "Renew it, and restart lockstep-tls.service.",
        ),
        Alert(
            "BackupOld",
            f"time() - lockstep_backup_last_success_timestamp_seconds > {2 * _DAY_S}",
            3600,
            "warning",
            "keeping",
            "The last backup that succeeded is {{ $value | humanizeDuration }} old.",
            "Run the backup by hand, and read what it says.",
        ),
    )


def twin_alerts(twins: Sequence[str]) -> tuple[Alert, ...]:
    """What a host judges of those that it records.

    Args:
        twins: Their names.
    """
    return tuple(
        Alert(
            "TwinSilent",
            f'up{{job="{TWIN_JOB}", host="{twin}"}} == 0',
            # A boot takes less.
            120,
            "critical",
            "twin",
            "The Spark has not answered for two minutes.",
            "`lockstep blackbox INVENTORY HOST` shows its last minutes. Look at its power and "
            "its cable.",
            host=twin,
        )
        for twin in twins
    )


def rules_text(settings: Settings, twins: Sequence[str] = ()) -> str:
    """The file of rules that Prometheus reads on a host.

    Args:
        settings: Of the host.
        twins: Names of the hosts that it records.
    """
    own = [_rule(settings.name, alert) for alert in alerts(settings)]
    others = [_rule(settings.name, alert) for alert in twin_alerts(twins)]
    groups = [{"name": "lockstep", "interval": f"{EVERY_S}s", "rules": [*own, *others]}]
    text = yaml.safe_dump({"groups": groups}, sort_keys=False, allow_unicode=True, width=10_000)
    return f"# {MARK}. Do not edit: the next deploy replaces it.\n{text}"


def _rule(own: str, alert: Alert) -> dict[str, Any]:
    host = alert.host or own
    return {
        "alert": alert.name,
        "expr": _OURS.sub(_own, alert.expr),
        "for": f"{alert.wait_s}s",
        "labels": {"severity": alert.severity, "subject": alert.subject, "instance": host},
        "annotations": {
            "summary": f"{host}: {alert.summary}",
            # ntfy's own template shows these two.
            "description": f"{alert.remedy} See {PAGE}#{alert.anchor}",
        },
    }


def _own(metric: re.Match[str]) -> str:
    """A metric of this host alone: some of a recorded host's have the same name here."""
    more = ", " if metric[2] else "}"
    return f'{metric[1]}{{job!="{TWIN_JOB}"{more}'
