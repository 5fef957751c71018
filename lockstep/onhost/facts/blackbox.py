"""The last minutes of a host, from the Prometheus and the journal of this host.

Of another host, this one has the values of each second and the kernel's messages. Of itself, it has
only the data that it wrote to its own disk in time.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from lockstep.onhost.core import http_client, layout
from lockstep.onhost.facts.logged_events import timed_journal_messages
from lockstep.onhost.facts.reader_helpers import FactUnreadable, paths_below
from lockstep.onhost.records import models_by_boot

#: Steps in which the end is searched, in seconds, and how far back, in days.
STEP_S, BACK_DAYS = 300, 30
SAME_BOOT_S = 10  #: Seconds; clocks are set while a host runs, so a smaller step is no other boot.
#: The most entries of a journal, and lines of a file of pstore, that are returned; the last ones.
MOST, MOST_LINES = 1000, 60
_TIMEOUT_S = 30.0
#: systemd moves the kernel's saved messages from the second folder to the first.
_PSTORE = ("/var/lib/systemd/pstore", "/sys/fs/pstore")


def read(question: dict[str, Any]) -> dict[str, Any]:
    """Return the last minutes of one host, all times in Unix time, seconds.

    Args:
        question: The "host"; "minutes"; "before_boot": whether the boot before its present one is
            meant; "job" of Prometheus, its "url" or null, and names of "series"; the "identifier"
            of its messages in the journal here, null for this host itself.

    Returns:
        "now"; the "end"; "alive": whether that is now; "booted": its last start, null if unknown;
        "series": [{"name", "labels", "values": [[time, value]]}]; "said": [[time, program,
        message]]. For this host itself also its "last_words", file → text, and the "boot" before
        this one: {"model", "phase", "ended"}.
    """
    now, own = time.time(), question["identifier"] is None
    prometheus = (
        _Prometheus(question["url"], question["job"], question["host"]) if question["url"] else None
    )
    document: dict[str, Any] = {"now": now, "series": [], "boot": None, "last_words": {}}
    if own:
        document |= {
            "boot": _model_of_previous_boot(),
            "last_words": _kept_kernel_messages(question["before_boot"]),
        }
    period = prometheus.end_and_boot_times(now, question["before_boot"]) if prometheus else None
    if period is None and not own:
        raise FactUnreadable(f"no sample of {question['host']} is here")
    end, boot_time, return_time = period or _end_and_boot_times_by_journal(
        now, question["before_boot"]
    )
    begin = end - 60.0 * question["minutes"]
    if prometheus and period:
        document["series"] = prometheus.series_between(question["series"], begin, end)
    # A kernel may still send messages when nothing else does.
    until = return_time or now
    filters = ["-p", "warning"] if own else ["-t", question["identifier"]]
    messages = timed_journal_messages(
        *filters, f"--since=@{begin:.0f}", f"--until=@{until + 1:.0f}", f"--lines={MOST}"
    )
    silent_s = 5.0 if question["job"] == "peer" else 45.0
    alive = not question["before_boot"] and now - end < silent_s
    return {**document, "end": end, "booted": boot_time, "alive": alive, "said": messages}


class _Prometheus:
    """The Prometheus of this host, queried about one host."""

    def __init__(self, url: str, job: str, host: str) -> None:
        self._address = url.removeprefix("http://")
        self._of = f'{{job="{job}",host="{host}"}}'

    def end_and_boot_times(
        self, now: float, before_boot: bool
    ) -> tuple[float, float, float | None] | None:
        """Return when the host was last seen, when its present boot began, when it was next seen.

        It was last seen in its present boot, with `before_boot` in the one before. None if there is
        no such sample.
        """
        boot = f"node_boot_time_seconds{self._of}"
        steps = self._ask(
            "query_range",
            query=f"min_over_time({boot}[{STEP_S}s])",
            start=now - 86400 * BACK_DAYS,
            end=now + STEP_S,
            step=STEP_S,
        )
        points = [(float(at), float(value)) for step in steps for at, value in step["values"]]
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
        earlier_times = [at for at, value in samples if value < latest - SAME_BOOT_S]
        later_times = [at for at, value in samples if value >= latest - SAME_BOOT_S]
        return earlier_times[-1], latest, later_times[0] if later_times else latest

    def _samples(self, series: str, until: float) -> list[tuple[float, float]]:
        """Return the samples of the step that ends then."""
        (sample_series,) = self._ask("query", query=f"{series}[{STEP_S}s]", time=until)
        return [(float(at), float(value)) for at, value in sample_series["values"]]

    def series_between(self, names: list[str], begin: float, end: float) -> list[dict[str, Any]]:
        """Return the series of the host by these names, between two times."""
        of = self._of.replace("{", f'{{__name__=~"{"|".join(names)}",', 1)
        query = f"{of}[{end - begin:.0f}s]"
        series_found = self._ask("query", query=query, time=end + 0.001)
        return [
            {
                "name": series_entry["metric"].pop("__name__"),
                "labels": series_entry["metric"],
                "values": [[float(at), float(value)] for at, value in series_entry["values"]],
            }
            for series_entry in series_found
        ]

    def _ask(self, endpoint: str, **words: object) -> list[dict[str, Any]]:
        url = f"http://{self._address}/api/v1/{endpoint}?{urlencode(words)}"
        try:
            answer = http_client.ask(url, _TIMEOUT_S)
        except http_client.FAULTS as fault:
            why = f"Prometheus at {self._address} does not answer: {fault}"
            raise FactUnreadable(f"{why}. Remedy: journalctl -u lockstep-prometheus") from fault
        if answer.status != 200:
            why = f"{answer.status}: {answer.body.decode(errors='replace')[:200]}"
            raise FactUnreadable(f"Prometheus at {self._address} answers {why}")
        results: list[dict[str, Any]] = json.loads(answer.body)["data"]["result"]
        return results


def _end_and_boot_times_by_journal(
    now: float, before_boot: bool
) -> tuple[float, float, float | None]:
    """Return the same three times for this host, by its own journal."""
    boot_time = now - float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
    if not before_boot:
        return now, boot_time, None
    last = timed_journal_messages("-b", "-1", "-n", "1")
    if not last:
        raise FactUnreadable("the journal has no boot before this one")
    return last[-1][0], boot_time, boot_time


def _model_of_previous_boot() -> dict[str, Any] | None:
    """Return the model and phase of the boot before this one, and the time when it ended."""
    paths = layout.Paths()
    past = models_by_boot.load(paths).past_boots(models_by_boot.boot_id(paths))
    if not past:
        return None
    last = past[-1]
    return {"model": last.model, "phase": last.phase, "ended": last.began + last.duration_s}


def _kept_kernel_messages(before_boot: bool) -> dict[str, str]:
    """Return the messages that the kernel kept over the last boot."""
    if not before_boot:
        return {}
    files = [path for folder in _PSTORE for path in paths_below(folder)]
    newest = max((Path(path).stat().st_mtime for path in files), default=0.0)
    words_by_file = {}
    for path in files:
        # Files of older boots stay there.
        if Path(path).stat().st_mtime > newest - 600:
            lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
            words_by_file[path] = "\n".join(lines[-MOST_LINES:])
    return words_by_file
