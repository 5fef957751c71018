"""Client of this host's Alertmanager, at its port on loopback."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from lockstep.onhost.core import http_client

_TIMEOUT_S = 5.0
_COUNT = re.compile(
    r'^alertmanager_notification_requests_(failed_)?total\{integration="(\w+)"\} ([\d.e+]+)$',
    re.MULTILINE,
)


class AlertmanagerUnreachable(Exception):
    """No answer, or an unusable one; says why."""


class AlertmanagerRefusal(Exception):
    """A refused request; says why."""


class Alertmanager:
    """One Alertmanager on loopback.

    Args:
        port: Its port.
    """

    def __init__(self, port: int) -> None:
        self._port = port

    def raise_alert(
        self, labels: Mapping[str, str], annotations: Mapping[str, str], ends: str
    ) -> None:
        """Raise an alert that ends at a time (ISO 8601).

        Raises:
            AlertmanagerRefusal: It refuses the alert.
            AlertmanagerUnreachable: It gives no usable answer.
        """
        alert = {"labels": dict(labels), "annotations": dict(annotations), "endsAt": ends}
        self._send_request("POST", "/api/v2/alerts", [alert])

    def notification_counts(self) -> dict[str, tuple[int, int]]:
        """Return notification requests, made and failed, by way ("webhook").

        Raises as `raise_alert`.
        """
        made_counts, failed_counts = dict[str, int](), dict[str, int]()
        for kind, way, value in _COUNT.findall(self._send_request("GET", "/metrics").decode()):
            (failed_counts if kind == "failed_" else made_counts)[way] = int(float(value))
        return {
            way: (made_counts.get(way, 0), failed_counts.get(way, 0))
            for way in made_counts | failed_counts
        }

    def _send_request(self, method: str, path: str, body: object = None) -> bytes:
        url, headers = f"http://127.0.0.1:{self._port}", {"Content-Type": "application/json"}
        text = None if body is None else json.dumps(body).encode()
        try:
            answer = http_client.ask(url + path, _TIMEOUT_S, method, text, headers)
        except http_client.FAULTS as fault:
            raise AlertmanagerUnreachable(f"Alertmanager at port {self._port}: {fault}") from fault
        if answer.status != 200:
            words = answer.body.decode("utf-8", "replace").strip()[:200]
            raise AlertmanagerRefusal(f"Alertmanager answers with {answer.status}: {words}")
        return answer.body
