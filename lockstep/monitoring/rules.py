"""The alert rules of one host, from `templates/monitoring/rules.yml.j2`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lockstep.files.templating import render_template
from lockstep.inventory.settings import Settings
from lockstep.onhost.facts.tls import SOON_DAYS
from lockstep.onhost.switching import wedge_watch
from lockstep.onhost.switching.switch_commands import UNIT as SWITCH_UNIT

#: Seconds between two evaluations.
EVERY_S = 15
#: Job by which Prometheus scrapes the hosts that it records.
PEER_JOB = "peer"
_EXPRESSION = re.compile(r"^ *expr:.*(?:\n {10,}.*)*", re.MULTILINE)
_OURS = re.compile(r"\b(lockstep_\w+)(\{)?")


def rules_text(settings: Settings, peers: Sequence[str] = ()) -> str:
    """Return the rules that Prometheus reads on a host which records ``peers``."""
    # A fallback has a unit of its own.
    models = (f"{model.unit}(-fallback)?.service" for model in settings.models.values())
    text = render_template(
        "monitoring/rules.yml.j2",
        host=settings.name,
        every_s=EVERY_S,
        restarts=wedge_watch.RESTARTS,
        cap_mhz=settings.gpu.max_clock_mhz,
        free_gib=settings.expected.free_disk_gib,
        told_elsewhere=(SWITCH_UNIT, *models),
        certificate_days=SOON_DAYS,
        peers=peers,
        peer_job=PEER_JOB,
    )
    # A host's name may begin like a metric.
    return _EXPRESSION.sub(lambda expression: _OURS.sub(_own, expression[0]), text)


def _own(metric: re.Match[str]) -> str:
    """Return a metric of this host only: those of a recorded host may have the same name here."""
    more = ", " if metric[2] else "}"
    return f'{metric[1]}{{job!="{PEER_JOB}"{more}'
