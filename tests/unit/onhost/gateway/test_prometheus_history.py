"""The last hour from Prometheus, asked once for all watchers; a fault of it is said."""

import asyncio
from typing import Any

import metric_names
from local_server import Answers, as_json, refused_address, serving

from lockstep.onhost.gateway.prometheus_history import QUERIES, History


def test_each_metric_exists(tmp_path):
    published_names = metric_names.published_metrics(tmp_path)
    for query in QUERIES.values():
        assert metric_names.queried_metrics(query) <= published_names


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
