"""The last hour from Prometheus, asked once for all watchers; a fault of it is said."""

from __future__ import annotations

import asyncio
from typing import Any

import metric_names
from a_prometheus import prometheus
from event_loop import in_event_loop
from local_server import Answers, as_json, refused_address, serving

from lockstep.onhost.gateway.prometheus_history import HOUR_S, QUERIES, STEP_S, History


def test_each_metric_exists(tmp_path):
    published_names = metric_names.published_metrics(tmp_path)
    for query in QUERIES.values():
        assert metric_names.queried_metrics(query) <= published_names


@in_event_loop
async def test_the_hour_is_asked_once_for_all_and_has_none_where_there_is_nothing() -> None:
    with prometheus() as metrics_server:
        history = History(metrics_server.url)
        document, *_ = await asyncio.gather(*(history.last_hour() for _ in range(5)))
        assert len(metrics_server.requests) == len(QUERIES)
    assert document["series"].keys() == {"memory_gib", "celsius", "watts", "mhz"}
    memory = document["series"]["memory_gib"]
    assert len(memory) == HOUR_S // STEP_S + 1 and memory.count(None) == 20
    assert {min(v for v in memory if v is not None), max(v or 0 for v in memory)} == {40.0, 100.0}


def last_hour(answers: Answers) -> dict[str, Any]:
    with serving(answers) as metrics_server:
        return asyncio.run(History(metrics_server.url).last_hour())


def test_what_is_no_number_is_no_value_and_what_is_no_answer_a_fault() -> None:
    values = [[at, "NaN" if at % 60 else "+Inf"] for at in range(0, 10**4, 30)]
    path, body = "/api/v1/query_range", {"data": {"result": [{"values": values}]}}
    assert last_hour({path: as_json(body)})["series"] == {}
    assert "does not answer" in last_hour({path: as_json({})})["fault"]
    assert "404" in last_hour({})["fault"]
    assert asyncio.run(History(f"http://{refused_address()}").last_hour()).keys() == {"fault"}
