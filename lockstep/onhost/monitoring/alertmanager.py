"""Alertmanager of this host, asked at its port on loopback."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Mapping
from typing import Any

_TIMEOUT_S = 5.0
_COUNT = re.compile(
    r'^alertmanager_notification_requests_(failed_)?total\{integration="(\w+)"\} ([\d.e+]+)$',
    re.MULTILINE,
)


class Unreachable(Exception):
    """No answer, or none that can be used; says why."""


class Refused(Exception):
    """It does not do what was asked; says why."""


class Alertmanager:
    """One Alertmanager.

    Args:
        port: On loopback.
    """

    def __init__(self, port: int) -> None:
        self._port = port

    def raise_alert(
        self, labels: Mapping[str, str], annotations: Mapping[str, str], ends: str
    ) -> None:
        """Raise an alert that is over at a time of ISO 8601. Refused, or Unreachable."""
        alert = {"labels": dict(labels), "annotations": dict(annotations), "endsAt": ends}
        self._ask("POST", "/api/v2/alerts", [alert])

    def silences(self) -> list[dict[str, Any]]:
        """The silences that it knows, also those that are over. Raises as `raise_alert`."""
        found: list[dict[str, Any]] = json.loads(self._ask("GET", "/api/v2/silences"))
        return found

    def silence(self, silence: Mapping[str, Any]) -> str:
        """Make a silence, or change the one with its "id"; its id. Raises as `raise_alert`."""
        return str(json.loads(self._ask("POST", "/api/v2/silences", silence))["silenceID"])

    def end_silence(self, name: str) -> None:
        """End the silence of this id. Raises as `raise_alert`."""
        self._ask("DELETE", f"/api/v2/silence/{name}")

    def requests(self) -> dict[str, tuple[int, int]]:
        """Way of telling ("webhook") → requests made and failed. Raises as `raise_alert`."""
        made, failed = dict[str, int](), dict[str, int]()
        for kind, way, value in _COUNT.findall(self._ask("GET", "/metrics").decode()):
            (failed if kind == "failed_" else made)[way] = int(float(value))
        return {way: (made.get(way, 0), failed.get(way, 0)) for way in made | failed}

    def _ask(self, method: str, path: str, body: object = None) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_TIMEOUT_S)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            said = answer.read()
        except (OSError, http.client.HTTPException) as fault:
            raise Unreachable(f"Alertmanager at port {self._port}: {fault}") from fault
        finally:
            connection.close()
        if answer.status != 200:
            words = said.decode("utf-8", "replace").strip()[:200]
            raise Refused(f"Alertmanager answers with {answer.status}: {words}")
        return said
