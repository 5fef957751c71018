"""The last hour from Prometheus, asked once for all watchers; a fault of it is said."""

from __future__ import annotations

import asyncio
import json

import metric_names
from a_prometheus import prometheus
from event_loop import in_event_loop
from local_server import Reply, refused_address, serving

from lockstep.onhost.gateway.prometheus_history import HOUR_S, QUERIES, STEP_S, History


def test_each_metric_exists(tmp_path):
    published_names = metric_names.published_metrics(tmp_path)
    for query in QUERIES.values():
        assert metric_names.queried_metrics(query) <= published_names


def test_the_hour_has_a_place_for_each_point_and_none_where_there_is_nothing():
    with prometheus() as metrics_server:
        document = asyncio.run(History(metrics_server.url).last_hour())
    assert document["series"].keys() == {"memory_gib", "celsius", "watts", "mhz"}
    memory = document["series"]["memory_gib"]
    assert len(memory) == HOUR_S // STEP_S + 1 and memory.count(None) == 20
    assert {min(v for v in memory if v is not None), max(v or 0 for v in memory)} == {40.0, 100.0}


@in_event_loop
async def test_one_look_is_for_all_who_ask():
    with prometheus() as metrics_server:
        history = History(metrics_server.url)
        await asyncio.gather(*(history.last_hour() for _ in range(5)))
        assert len(metrics_server.requests) == len(QUERIES)


def test_what_is_no_number_is_no_value():
    values = [[at, "NaN" if at % 60 else "+Inf"] for at in range(0, 10**4, 30)]
    body = {"data": {"result": [{"values": values}]}}
    with serving({"/api/v1/query_range": Reply(json.dumps(body).encode())}) as metrics_server:
        assert asyncio.run(History(metrics_server.url).last_hour())["series"] == {}


def test_a_prometheus_that_is_away_or_talks_nonsense_is_a_fault():
    away = asyncio.run(History(f"http://{refused_address()}").last_hour())
    assert away.keys() == {"fault"}
    with serving({"/api/v1/query_range": Reply(b"{}")}) as odd:
        assert "does not answer" in asyncio.run(History(odd.url).last_hour())["fault"]
    with serving({}) as absent_server:
        assert "404" in asyncio.run(History(absent_server.url).last_hour())["fault"]
