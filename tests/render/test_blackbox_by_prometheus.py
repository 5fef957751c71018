"""The last minutes of a host, as the real Prometheus has them; the journal is a stand-in."""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from a_probe import program
from lab_servers import ask as ask_server
from lab_servers import free_port, until
from tools import run

from lockstep.monitoring.stack import SERIES
from lockstep.onhost.facts import blackbox
from lockstep.onhost.facts.reader_helpers import FactUnreadable

#: Seconds before now: the first boot was cut off, the second one fell silent.
FIRST, CUT_OFF, AGAIN, SILENT = 5000, 4000, 3960, 1200
GIB = 1024**3


def samples(now: int) -> Iterator[tuple[str, str, int, float]]:
    """Metric, host, time and value; `up` goes on while a host is silent."""
    for host, spans in {
        "spark-1": ((FIRST, CUT_OFF), (AGAIN, SILENT)),
        "spark-2": ((FIRST, 0),),
    }.items():
        for begin, end in spans:
            for back in range(begin, end, -1):
                at = now - back
                # A clock that is set moves the time of a boot a little.
                yield "node_boot_time_seconds", host, at, now - begin - 5 + (back % 3)
                yield "lockstep_memory_available_bytes", host, at, (back - end) * GIB / 10
                yield "lockstep_drift_differences", host, at, 1


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """A Prometheus with these samples; gives the time of their end."""
    folder, now = tmp_path_factory.mktemp("kept"), int(time.time())
    by_metric: dict[str, list[str]] = {}
    for name, host, at, value in samples(now):
        line = f'{name}{{job="peer",host="{host}"}} {value} {at}'
        by_metric.setdefault(name, [f"# TYPE {name} gauge"]).append(line)
    text = "".join(f"{line}\n" for lines in by_metric.values() for line in lines)
    (folder / "samples").write_text(f"{text}# EOF\n")
    words = ("promtool", "tsdb", "create-blocks-from", "openmetrics")
    result = run([*words, folder / "samples", folder / "data"])
    assert result.returncode == 0, result.stdout + result.stderr
    (folder / "prometheus.yml").write_text("scrape_configs: []\n")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    argv = ["prometheus", f"--config.file={folder}/prometheus.yml"]
    argv += [f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}"]
    server = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: ask_server(f"{url}/-/ready").status == 200, "Prometheus")
        yield url, now
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def ask(prometheus: tuple[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Ask about a host; "asked" of the answer has the questions to the journal."""
    entry = {"__REALTIME_TIMESTAMP": "1000000", "SYSLOG_IDENTIFIER": "x", "MESSAGE": "3,1,2,-;oops"}
    body = f'echo "$*" > {tmp_path}/asked\necho {json.dumps(json.dumps(entry))}'
    program(tmp_path / "bin", "journalctl", body)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")

    def ask_about(host: str, **more: Any) -> dict[str, Any]:
        question = {
            "host": host,
            "minutes": 2,
            "before_boot": False,
            "job": "peer",
            "url": prometheus[0],
            "series": list(SERIES),
            "identifier": f"netconsole-{host}",
        }
        answer = blackbox.read({**question, **more})
        return {**answer, "asked": (tmp_path / "asked").read_text().split()}

    return ask_about


def memory(answer: dict[str, Any]) -> list[list[float]]:
    (series,) = [entry for entry in answer["series"] if entry["name"].startswith("lockstep_memory")]
    values: list[list[float]] = series["values"]
    return values


def test_a_silent_host_ends_at_its_last_sample(prometheus: tuple[str, int], ask: Any) -> None:
    answer, now = ask("spark-1"), prometheus[1]
    assert answer["end"] == now - SILENT - 1
    assert answer["alive"] is False
    assert abs(answer["booted"] - (now - AGAIN)) < 10
    values = memory(answer)
    # Of two minutes, each second, to the very end.
    assert [len(values), values[-1]] == [120, [answer["end"], GIB / 10]]
    # Nothing else is brought.
    assert {series["name"] for series in answer["series"]} <= {*SERIES}
    assert answer["said"] == [(1.0, "x", "3,1,2,-;oops")]
    arguments = answer["asked"]
    assert arguments[arguments.index("-t") + 1] == "netconsole-spark-1"
    # A kernel may go on speaking when nothing else does.
    assert int(arguments[-2].removeprefix("--until=@")) >= now


def test_the_end_of_the_boot_before(prometheus: tuple[str, int], ask: Any) -> None:
    answer, now = ask("spark-1", before_boot=True), prometheus[1]
    assert answer["end"] == now - CUT_OFF - 1
    assert memory(answer)[-1] == [answer["end"], GIB / 10]
    # Not what the kernel of the next boot says.
    assert int(answer["asked"][-2].removeprefix("--until=@")) == now - AGAIN + 1


def test_a_host_that_is_up_is_shown_until_now(prometheus: tuple[str, int], ask: Any) -> None:
    answer = ask("spark-2")
    assert answer["end"] == prometheus[1] - 1
    # The samples end where the test began.
    assert answer["alive"] is (answer["now"] - answer["end"] < 5)


@pytest.mark.parametrize(
    ("host", "more", "message"),
    [
        ("spark-9", {}, "no sample of spark-9 is here"),
        ("spark-2", {"before_boot": True}, "no sample of spark-2 is here"),
        ("spark-1", {"url": "http://127.0.0.1:9"}, "9 does not answer.*Remedy: journalctl -u"),
    ],
    ids=["never", "no boot", "no Prometheus"],
)
def test_what_is_not_known_is_named(ask: Any, host: str, more: Any, message: str) -> None:
    with pytest.raises(FactUnreadable, match=message):
        ask(host, **more)
