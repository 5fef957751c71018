"""The pure parts of the benchmark of a load."""

from __future__ import annotations

import argparse
import json
import math
import struct
from pathlib import Path
from typing import Any

import pytest

from benchmarks.load import checkpoint, page
from benchmarks.load.__main__ import turn_ways
from benchmarks.load.checkpoint import Llama
from benchmarks.load.engines import Engine, LlamaTimer, VllmTimer
from benchmarks.load.ways import KERNEL, LOCKSTEP, Way, parse_way
from lockstep.checkpoints import gguf


def _load(way: str, seconds: float, plain_s: float = 4.0, disk: str = "usb") -> dict[str, Any]:
    keys = {"engine": "vllm", "disk": disk, "way": way, "bytes": 2_000_000_000, "round": 0}
    cache = {"most_cached": 2**30, "left_cached": 2**29}
    return {**keys, **cache, "seconds": seconds, "plain_s": plain_s, "start_s": 30.0}


def test_shards_have_all_tensors_in_their_order_and_about_one_size(tmp_path: Path) -> None:
    files = checkpoint.write_safetensors(tmp_path, Llama(256, 1024, layers=2), shard_count=3)
    names: list[str] = []
    for path in files:
        data = path.read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8 : 8 + length])
        header.pop("__metadata__")
        end = 0
        for entry in header.values():
            assert entry["data_offsets"] == [end, end + 2 * math.prod(entry["shape"])]
            end = entry["data_offsets"][1]
        assert end == len(data) - 8 - length
        names += header
    assert names == list(Llama(256, 1024, 2).tensors()) == sorted(names)
    places = json.loads((tmp_path / "model.safetensors.index.json").read_text())["weight_map"]
    assert set(places.values()) == {path.name for path in files}
    assert len(files) == 3


def test_a_gguf_file_has_its_configuration_and_all_tensors(tmp_path: Path) -> None:
    path = checkpoint.write_gguf(tmp_path / "model.gguf", Llama(256, 1024, layers=1))
    start = path.open("rb").read(2**20)
    found = gguf.configuration(start)
    assert found["num_hidden_layers"] == 1
    assert found["hidden_size"] == 256
    assert b"blk.0.ffn_down.weight" in start
    vectors = 3 * 256
    weights = sum(
        2 * shape[0] * shape[1] for shape in Llama(256, 1024, 1).tensors().values() if shape[1:]
    )
    assert 0 < path.stat().st_size - weights - 4 * vectors < 2 * 2**20


@pytest.mark.parametrize("size", [2 * 2**30, 15 * 2**30])
def test_a_model_has_about_the_size(size: int) -> None:
    shapes = checkpoint.llama_of(size).tensors().values()
    found = sum(2 * shape[0] * (shape[1] if len(shape) > 1 else 1) for shape in shapes)
    assert found == pytest.approx(size, rel=0.06)


def test_the_smallest_model_has_a_layer() -> None:
    assert checkpoint.llama_of(1).layers == 1


def test_a_load_within_the_bound_with_lockstep_counts_on_every_disk() -> None:
    good = [_load("kernel", 10.0), _load("lockstep", 4.8)]
    assert page.is_within_bound(good)
    assert not page.is_within_bound([*good, _load("lockstep", 5.2, disk="nvme")])
    assert page.is_within_bound([*good, _load("lockstep", 9.0), _load("lockstep", 4.9)])


def test_a_page_has_ratio_spread_rate_and_cache() -> None:
    loads = [_load("kernel", 10.0), _load("kernel", 8.0), _load("lockstep", 4.0)]
    disk = {"disk": "usb", "rate": 475e6, "latency": 0.0006, "depth": 32, "request_kb": 512}
    found = {"plain_rate": 470e6, "random_s": 0.0007, "mapped_rate_kernel": 240e6}
    found["mapped_rate_lockstep"] = 460e6
    failure = {"engine": "vllm", "disk": "usb", "way": "eager", "log": "no such word\n"}
    results = {"disks": [{**disk, **found}], "loads": loads, "failures": [failure]}
    text = page.text({"about": {"machine": "m"}, **results})
    assert "**vllm on usb, eager** did not load:\n\n```\nno such word\n```" in text
    assert "| usb | 475 MB/s, 0.60 ms | 470 MB/s | 0.70 ms | 240 MB/s | 460 MB/s |" in text
    assert (
        "| vllm | usb | kernel | 9.0 s | 222 | 4.0 s | 2.25 (2.00 to 2.50) | 1.0, 0.5 GiB |" in text
    )
    assert "| vllm | usb | lockstep | 4.0 s | 500 | 4.0 s | 1.00 | 1.0, 0.5 GiB |" in text


def test_a_way_is_parsed() -> None:
    assert parse_way("big=32768") == Way("big", 32768)
    text = "vllm:eager=128,--safetensors-load-strategy=eager,-x"
    words = ("--safetensors-load-strategy=eager", "-x")
    assert parse_way(text) == Way("eager", 128, words, "vllm")


@pytest.mark.parametrize("text", ["", "big", "=128", "big=", "big=x", "sglang:big=128"])
def test_a_wrong_way_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not"):
        parse_way(text)


def test_each_round_begins_with_another_way() -> None:
    assert turn_ways([KERNEL, LOCKSTEP], 0) == [KERNEL, LOCKSTEP]
    assert turn_ways([KERNEL, LOCKSTEP], 1) == [LOCKSTEP, KERNEL]
    assert turn_ways([KERNEL, LOCKSTEP], 2) == [KERNEL, LOCKSTEP]


def test_the_seconds_of_vllm() -> None:
    timer = VllmTimer()
    assert timer.seconds("INFO Starting to load model /m...") is None
    line = "(EngineCore pid=7) INFO [default_loader.py:268] Loading weights took 8.98 seconds"
    assert timer.seconds(line) == 8.98


def test_the_seconds_of_llama_server() -> None:
    timer = LlamaTimer()
    assert timer.seconds("0.00.000.864 I srv  llama_server: initializing ...") is None
    assert timer.seconds("0.59.218.871 I srv    load_model: loading model '/m.gguf'") is None
    assert timer.seconds("0.59.300.000 I srv    another line") is None
    seconds = timer.seconds(
        "1.01.185.441 I cmn          init: llama threadpool init, n_threads = 2"
    )
    assert seconds == pytest.approx(1.96657)


def test_what_outlives_an_engine_is_ended_before_its_disk_goes(tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho Loading weights took 1.5 seconds\nexec sleep 60\n")
    program.chmod(0o755)
    engine = Engine("vllm", str(program), {}, end_command=f"touch {tmp_path}/ended")

    assert engine.load(tmp_path, (), tmp_path / "log", limit_s=30).seconds == 1.5

    assert (tmp_path / "ended").exists()
