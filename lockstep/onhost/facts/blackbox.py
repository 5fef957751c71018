"""The last minutes of a host: what Prometheus here has of it, and what was said until its end.

Of another host, this one has the values of each second and the kernel's messages. Of itself, it has
what it wrote to its own disk in time.
"""

from __future__ import annotations

import http.client
import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from lockstep.onhost.core import layout
from lockstep.onhost.facts.history import entries
from lockstep.onhost.facts.reading import Unreadable, below
from lockstep.onhost.records import boots

#: Seconds of the steps in which the end is looked for, and how far back, in days.
STEP_S, BACK_DAYS = 300, 30
SAME_BOOT_S = 10  #: Clocks are set while a host runs: less is no other boot, seconds.
#: Most entries of a journal, and lines of a file of pstore, that are told; the last ones.
MOST, MOST_LINES = 1000, 60
_TIMEOUT_S = 30.0
#: systemd moves to the first what the kernel kept over a boot.
_PSTORE = ("/var/lib/systemd/pstore", "/sys/fs/pstore")


def read(asked: dict[str, Any]) -> dict[str, Any]:
    """The last minutes of one host, all times in Unix time, seconds:

    "now"; the "end"; "alive": whether that is now; "booted": when it last started, null where that
    is not known; "series": [{"name", "labels", "values": [[time, value]]}]; "said": [[time,
    program, message]]. Of this host itself also its "last_words", file → text, and the "boot"
    before this one: {"target", "phase", "ended"}. Asked: The "host"; "minutes"; "before_boot":
    whether of the boot before its present one; "job" of Prometheus, its "url" or null, and names of
    "series"; the "identifier" of its messages in the journal here, null for this host itself.
    """
    now, own = time.time(), asked["identifier"] is None
    prometheus = _Prometheus(asked["url"], asked["job"], asked["host"]) if asked["url"] else None
    told: dict[str, Any] = {"now": now, "series": [], "boot": None, "last_words": {}}
    if own:
        told |= {"boot": _boot_before(), "last_words": _last_words(asked["before_boot"])}
    found = prometheus.end(now, asked["before_boot"]) if prometheus else None
    if found is None and not own:
        raise Unreadable(f"no sample of {asked['host']} is here")
    end, booted, returned = found or _end_by_journal(now, asked["before_boot"])
    begin = end - 60.0 * asked["minutes"]
    if prometheus and found:
        told["series"] = prometheus.values(asked["series"], begin, end)
    # A kernel may go on speaking when nothing else does.
    until = returned or now
    which = ["-p", "warning"] if own else ["-t", asked["identifier"]]
    said = entries(*which, f"--since=@{begin:.0f}", f"--until=@{until + 1:.0f}", f"--lines={MOST}")
    silent_s = 5.0 if asked["job"] == "twin" else 45.0
    alive = not asked["before_boot"] and now - end < silent_s
    return {**told, "end": end, "booted": booted, "alive": alive, "said": said}


class _Prometheus:
    """The Prometheus of this host, asked about one host."""

    def __init__(self, url: str, job: str, host: str) -> None:
        self._address = url.removeprefix("http://")
        self._of = f'{{job="{job}",host="{host}"}}'

    def end(self, now: float, before_boot: bool) -> tuple[float, float, float | None] | None:
        """When the host was last seen, in its present boot or in the one before; when its present
        boot began; when it was next seen. None where there is no such sample.
        """
        boot = f"node_boot_time_seconds{self._of}"
        steps = self._ask(
            "query_range",
            query=f"min_over_time({boot}[{STEP_S}s])",
            start=now - 86400 * BACK_DAYS,
            end=now + STEP_S,
            step=STEP_S,
        )
        points = [(float(at), float(value)) for each in steps for at, value in each["values"]]
        if not points:
            return None
        latest = self._samples(boot, max(points)[0])[-1][1]
        if before_boot:
            points = [(at, value) for at, value in points if value < latest - SAME_BOOT_S]
        if not points:
            return None
        samples = self._samples(boot, max(points)[0])
        if not before_boot:
            return samples[-1][0], latest, None
        before = [at for at, value in samples if value < latest - SAME_BOOT_S]
        after = [at for at, value in samples if value >= latest - SAME_BOOT_S]
        return before[-1], latest, after[0] if after else latest

    def _samples(self, series: str, until: float) -> list[tuple[float, float]]:
        """Those of the step that ends then."""
        (found,) = self._ask("query", query=f"{series}[{STEP_S}s]", time=until)
        return [(float(at), float(value)) for at, value in found["values"]]

    def values(self, names: list[str], begin: float, end: float) -> list[dict[str, Any]]:
        """Series of the host by these names, between two times."""
        of = self._of.replace("{", f'{{__name__=~"{"|".join(names)}",', 1)
        query = f"{of}[{end - begin:.0f}s]"
        found = self._ask("query", query=query, time=end + 0.001)
        return [
            {
                "name": each["metric"].pop("__name__"),
                "labels": each["metric"],
                "values": [[float(at), float(value)] for at, value in each["values"]],
            }
            for each in found
        ]

    def _ask(self, what: str, **words: object) -> list[dict[str, Any]]:
        connection = http.client.HTTPConnection(self._address, timeout=_TIMEOUT_S)
        try:
            connection.request("GET", f"/api/v1/{what}?{urlencode(words)}")
            answer = connection.getresponse()
            said = answer.read()
        except (OSError, http.client.HTTPException) as fault:
            why = f"Prometheus at {self._address} does not answer: {fault}"
            raise Unreadable(f"{why}. Remedy: journalctl -u lockstep-prometheus") from fault
        finally:
            connection.close()
        if answer.status != 200:
            why = f"{answer.status}: {said.decode(errors='replace')[:200]}"
            raise Unreadable(f"Prometheus at {self._address} answers {why}")
        found: list[dict[str, Any]] = json.loads(said)["data"]["result"]
        return found


def _end_by_journal(now: float, before_boot: bool) -> tuple[float, float, float | None]:
    """The same of this host, by its own journal."""
    booted = now - float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
    if not before_boot:
        return now, booted, None
    last = entries("-b", "-1", "-n", "1")
    if not last:
        raise Unreadable("the journal has no boot before this one")
    return last[-1][0], booted, booted


def _boot_before() -> dict[str, Any] | None:
    """What was starting or hot in the boot before this one, and when that ended."""
    paths = layout.Paths()
    past = boots.load(paths).past(boots.boot_id(paths))
    if not past:
        return None
    last = past[-1]
    return {"target": last.target, "phase": last.phase, "ended": last.began + last.lasted}


def _last_words(before_boot: bool) -> dict[str, str]:
    """What the kernel kept over the last boot."""
    if not before_boot:
        return {}
    files = [path for folder in _PSTORE for path in below(folder)]
    newest = max((Path(path).stat().st_mtime for path in files), default=0.0)
    found = {}
    for path in files:
        # Files of older boots stay there.
        if Path(path).stat().st_mtime > newest - 600:
            said = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
            found[path] = "\n".join(said[-MOST_LINES:])
    return found
