"""The alert rules of one host: the fault, its time, the remedy, and the page to read.

Each host judges itself. Of the hosts that it records, it judges only whether they are silent, so
each alert is raised once. A missing metric raises only `MetricsStopped`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import yaml

from lockstep.files.managed_file import MARK
from lockstep.inventory.settings import Settings
from lockstep.onhost.facts.tls import SOON_DAYS
from lockstep.onhost.switching import wedge_watch
from lockstep.onhost.switching.switch_job import UNIT as SWITCH_UNIT

#: Seconds between two evaluations.
EVERY_S = 15
#: Page of docs with a section for each alert.
PAGE = "monitoring"
#: Job by which Prometheus scrapes the hosts that it records.
PEER_JOB = "peer"
_OURS = re.compile(r"\b(lockstep_\w+)(\{)?")
_DAY_S = 86400
# Seconds for which a restart by the wedge watch is an alert: long enough to be told once.
_TOLD_S = 300
_GIB = 1024**3

Severity = Literal["critical", "warning"]
#: Subject of an alert. A switch silences `model`, a deploy also `host`.
Subject = Literal["model", "gpu", "host", "keeping", "peer"]


@dataclass(frozen=True)
class Alert:
    """A rule for an alert.

    Attributes:
        name: Its name in Prometheus and in messages.
        expr: PromQL; each series that it yields is an alert.
        summary: A sentence, after the host's name and a colon.
        remedy: What to do, as sentences.
        subject: Its subject, for silences.
        severity: "critical": somebody should look now.
        wait_s: Time for which the expression must hold, seconds.
        host: The host that it is about, where that is another host.
    """

    name: str
    expr: str
    summary: str
    remedy: str
    subject: Subject
    severity: Severity = "warning"
    wait_s: int = 0
    host: str = ""

    @property
    def anchor(self) -> str:
        """The alert's section in `PAGE`."""
        return self.name.lower()


def alerts(settings: Settings) -> Iterator[Alert]:
    """Yield the alerts of a host about itself; the thresholds are its own."""
    yield from _of_models()
    yield from _of_gpu(settings)
    yield from _of_host(settings)
    yield from _of_keeping()


def _of_models() -> Iterator[Alert]:
    yield Alert(
        "HotModelGone",
        # A start may take half an hour, and that is no fault. A deed of the wedge watch or the
        # memory minimum has an alert of its own.
        "lockstep_wanted_hot == 1 unless on (model) lockstep_hot_model == 1"
        " unless on (model) lockstep_loading_model == 1"
        " unless on (model) lockstep_engine_wedged == 1"
        " unless on (model) lockstep_memory_minimum_ended == 1"
        " unless on () lockstep_switch_running == 1",
        "{{ $labels.model }} was hot and is not any more. Nobody has stopped it.",
        "`switch.sh status` says how it ended, and `switch.sh {{ $labels.model }}` starts it.",
        "model",
        severity="critical",
        wait_s=120,
    )
    yield Alert(
        "EngineWedged",
        "lockstep_engine_wedged == 1"
        f" or time() - lockstep_wedge_deed_timestamp_seconds < {_TOLD_S}",
        "The engine of {{ $labels.model }} had requests and made no token.",
        f"The wedge watch restarted it, or left it down after {wedge_watch.RESTARTS} restarts in "
        "an hour. `switch.sh status` says which.",
        "model",
        severity="critical",
    )
    yield Alert(
        "ModelTalksNonsense",
        "lockstep_sense_ok == 0",
        "{{ $labels.model }} answers nonsense.",
        "Switch to another model, or back with `lockstep rollback`. "
        "`switch.sh status` has what was asked and what was answered.",
        "model",
        severity="critical",
    )
    yield Alert(
        "MemoryNearMinimum",
        "max(lockstep_memory_available_bytes)"
        ' < 1.25 * max(lockstep_memory_minimum_bytes{phase="serving"})'
        " unless on () lockstep_switch_running == 1",
        "{{ $value | humanize1024 }}B of memory are available. "
        "Below the minimum the engine is ended.",
        "Find what else holds memory, or give the model less by `overrides`.",
        "model",
        wait_s=60,
    )
    yield Alert(
        "EndedBelowMemoryMinimum",
        "lockstep_memory_minimum_ended == 1",
        "{{ $labels.model }} was ended before the host ran out of memory.",
        "`switch.sh status` says what is hot now. Give that model less by `overrides`, or "
        "find what else holds memory. Its next start ends this alert.",
        "model",
        severity="critical",
    )
    yield Alert(
        "EngineErrors",
        # A stopped engine breaks off its requests, and a switch stops an engine on purpose.
        '(sum(increase(lockstep_gateway_refusals_total{reason="no answer"}[5m])) > 5'
        ' or sum(increase(vllm:request_success_total{finished_reason="error"}[5m])) > 5)'
        " unless on () max_over_time(lockstep_switch_running[10m]) == 1",
        "The engine gave no answer to {{ $value | humanize }} requests in 5 minutes.",
        "`journalctl -u` of the model's unit has the engine's own words.",
        "model",
        wait_s=60,
    )


def _of_gpu(settings: Settings) -> Iterator[Alert]:
    cap = settings.gpu.max_clock_mhz
    yield Alert(
        "GpuHot",
        "lockstep_gpu_hot == 1",
        "Heat or the power supply holds the GPU's clock down.",
        "Free the air inlets, look at the power supply, or cap the clock by `gpu.max_clock_mhz`.",
        "gpu",
    )
    yield Alert(
        "GpuSlow",
        "lockstep_gpu_slow == 1",
        "The model is much slower than when it was accepted, and the GPU takes little power.",
        "Shut the Spark down and unplug the mains for a minute. A reboot does not help.",
        "gpu",
    )
    yield Alert(
        "ForeignEngine",
        "lockstep_gpu_foreign == 1",
        "An engine of somebody else holds memory on the GPU beside a model.",
        "`switch.sh status` names it and says how to stop it.",
        "gpu",
    )
    if cap is not None:
        yield Alert(
            "ClockCapLost",
            "lockstep_gpu_clock_cap_held == 0",
            f"The GPU runs above its cap of {cap} MHz.",
            "`journalctl -u lockstep-gpu-cap` says why the cap could not be set.",
            "gpu",
            # The wedge watch looks each minute, and sets the cap again.
            wait_s=180,
        )


def _of_host(settings: Settings) -> Iterator[Alert]:
    free = settings.expected.free_disk_gib
    yield Alert(
        "DiskFull",
        f"lockstep_disk_free_bytes < {free * _GIB:.0f}",
        f"{{{{ $value | humanize1024 }}}}B of the models' disk are free, {free:g} GiB is the "
        "least.",
        "`lockstep gc` removes what no model needs.",
        "keeping",
        wait_s=300,
    )
    yield Alert(
        "FailedUnit",
        # A switch reports its end to whoever started it, and a model has alerts of its own.
        f'lockstep_failed_unit{{unit!~"{"|".join(_told_elsewhere(settings))}"}} == 1',
        "{{ $labels.unit }} has failed.",
        "`journalctl -u {{ $labels.unit }}` says why.",
        "host",
        wait_s=60,
    )
    yield Alert(
        "GatewayDown",
        # systemd restarts it for ever, so its unit never counts as failed.
        'max(up{job="gateway"}) == 0',
        "The gateway has not answered for a minute. Nobody reaches a model through it.",
        "`switch.sh status` and `journalctl -u lockstep-gateway` say why.",
        "host",
        severity="critical",
        wait_s=60,
    )
    yield Alert(
        "UncleanBoot",
        "lockstep_boot_unclean == 1",
        "The boot before this one was cut off while a model was starting or hot.",
        "`switch.sh status` has the kernel's last words. The next switch ends this alert.",
        "host",
        severity="critical",
    )
    yield Alert(
        "MetricsStopped",
        "time() - lockstep_metrics_written_timestamp_seconds > 180"
        " or absent(lockstep_metrics_written_timestamp_seconds)",
        "Lockstep's own figures have stopped, and with them most alerts of this host.",
        "`journalctl -u lockstep-metrics` says why.",
        "host",
        wait_s=120,
    )


def _told_elsewhere(settings: Settings) -> tuple[str, ...]:
    # A fallback has a unit of its own.
    models = (f"{model.unit}(-fallback)?.service" for model in settings.models.values())
    return (SWITCH_UNIT, *models)


def _of_keeping() -> Iterator[Alert]:
    yield Alert(
        "Drift",
        'sum(lockstep_drift_differences{severity="error"}) > 0',
        "The last comparison found {{ $value }} differences from what was deployed.",
        "`lockstep diff` names them, and a deploy puts most of them right.",
        "host",
        wait_s=600,
    )
    yield Alert(
        "CertificateOld",
        f"lockstep_certificate_expiry_timestamp_seconds - time() < {SOON_DAYS * _DAY_S}",
        "The certificate {{ $labels.path }} ends in {{ $value | humanizeDuration }}.",
        "Renew it, and restart lockstep-tls.service.",
        "keeping",
        wait_s=3600,
    )
    yield Alert(
        "BackupOld",
        f"time() - lockstep_backup_last_success_timestamp_seconds > {2 * _DAY_S}",
        "The last backup that succeeded is {{ $value | humanizeDuration }} old.",
        "Run the backup by hand, and read what it says.",
        "keeping",
        wait_s=3600,
    )


def peer_alerts(peers: Sequence[str]) -> Iterator[Alert]:
    """Yield the alerts of a host about the hosts that it records, by their names."""
    for peer in peers:
        yield Alert(
            "PeerSilent",
            f'up{{job="{PEER_JOB}", host="{peer}"}} == 0',
            "The Spark has not answered for two minutes.",
            "`lockstep blackbox HOST` shows its last minutes. Look at its power and its cable.",
            "peer",
            severity="critical",
            # A boot takes less time.
            wait_s=120,
            host=peer,
        )


def rules_text(settings: Settings, peers: Sequence[str] = ()) -> str:
    """Return the rules that Prometheus reads on a host which records ``peers``."""
    every = (*alerts(settings), *peer_alerts(peers))
    rules = [_rule(settings.name, alert) for alert in every]
    groups = [{"name": "lockstep", "interval": f"{EVERY_S}s", "rules": rules}]
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
            # The template of ntfy shows only these two annotations.
            "description": f"{alert.remedy} `lockstep help {PAGE} {alert.anchor}` has more.",
        },
    }


def _own(metric: re.Match[str]) -> str:
    """Return a metric of this host only: those of a recorded host may have the same name here."""
    more = ", " if metric[2] else "}"
    return f'{metric[1]}{{job!="{PEER_JOB}"{more}'
