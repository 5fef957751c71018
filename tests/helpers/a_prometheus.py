"""A stand-in of Prometheus that keeps an hour of one host."""

from contextlib import AbstractContextManager
from urllib.parse import parse_qs, urlsplit

from local_server import LocalServer, Reply, SeenRequest, as_json, serving

#: Metric → lowest and highest value of the hour.
KEPT = {
    "lockstep_memory_available_bytes": (40.0, 100.0),
    "lockstep_gpu_temperature_celsius": (45.0, 75.0),
    "lockstep_gpu_power_watts": (4.5, 38.2),
    "lockstep_gpu_clock_hertz": (208.0, 2405.0),
}


def prometheus() -> AbstractContextManager[LocalServer]:
    """The server; it has no data for ten minutes in the middle of the hour."""
    return serving({"/api/v1/query_range": _range})


def _range(request: SeenRequest) -> Reply:
    query = {key: value[0] for key, value in parse_qs(urlsplit(request.path).query).items()}
    start, end, step = (int(query[key]) for key in ("start", "end", "step"))
    spans = [span for name, span in KEPT.items() if name in query["query"]]
    result = []
    for low, high in spans:
        times = [at for at in range(start, end + 1, step) if not 1500 <= at - start < 2100]
        values = [[at, str(low + (high - low) * (at % 600) / (600 - step))] for at in times]
        result.append({"metric": {}, "values": values})
    return as_json({"status": "success", "data": {"resultType": "matrix", "result": result}})
