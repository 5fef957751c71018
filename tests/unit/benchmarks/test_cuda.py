"""What of `benchmarks.cuda` needs no GPU: command lines, the engine's log, the page."""

import json
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import benchmarks.cuda
from benchmarks.cuda import fit, log, page, parts, ranks, server
from benchmarks.cuda.card import Card, waited
from benchmarks.cuda.cases import CASES, MACHINE, Case, command, predicted, recipe_of
from lockstep.fit import catalogue
from lockstep.fit.fit import OVERHEAD
from lockstep.fit.fit import fit as fit_of
from lockstep.models.configuration import from_config
from lockstep.models.known_models import Knowledge, Model
from lockstep.onhost.core.config import Target
from lockstep.recipes.sizing import Serving, read_back

DOCUMENT = (Path(__file__).parents[3] / "docs/evidence/cuda.md").read_text()
SHAPES = json.loads(Path(benchmarks.cuda.__file__).with_name("shapes.json").read_text())
CARD = Card("NVIDIA H200", "580.159.04", "9.0", 139.8, unified=False)
# vLLM 0.26.0 on that card, 2026-11-23.
LOG = (
    "(EngineCore pid=1) INFO [model_runner.py:305] Model loading took 15.27 GiB and 1.48 seconds",
    "(EngineCore pid=1) INFO [gpu_worker.py:1] Available KV cache memory: 53.12 GiB",
    "(EngineCore pid=1) INFO [kv_cache_utils.py:1] GPU KV cache size: 386,816 tokens",
    "(EngineCore pid=1) INFO [kv_cache_utils.py:2] Maximum concurrency for 32,768 tokens per "
    "request: 11.80x",
    "(EngineCore pid=1) INFO [jit_monitor.py:79] Kernel JIT monitor activated; monitored JIT "
    "compilations during inference will use mode=warn.",
)


def test_the_engines_own_figures_are_read_from_its_log() -> None:
    assert log.memory(LOG) == {
        "weights_gib": 15.27,
        "kv_gib": 53.12,
        "kv_tokens": 386816.0,
        "sequences": 11.8,
    }


def test_a_kernel_compiled_while_requests_wait_is_told_from_the_monitors_own_line() -> None:
    said = "WARNING Triton kernel JIT compilation during inference: fused_moe_kernel"
    assert log.compiled([*LOG, said]) == [said]


@pytest.mark.parametrize("name", CASES)
def test_each_case_is_a_command_line_with_weights_of_no_meaning(tmp_path, name: str) -> None:
    words, _ = command(CASES[name], tmp_path)
    assert words[:2] == ("vllm", "serve")
    assert words[2] == str(tmp_path / CASES[name].checkpoint)
    assert words[words.index("--load-format") + 1] == "dummy"
    assert "{draft}" not in " ".join(words)


@pytest.mark.parametrize("name", ["gemma4-fp8", "mistral4-nvfp4"])
def test_a_case_is_predicted_for_this_card_alone(tmp_path, name: str) -> None:
    case = CASES[name]
    folder = tmp_path / case.checkpoint
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SHAPES[case.checkpoint]))
    said = predicted(case, CARD, tmp_path, "0.26.0")
    assert said.budget_gib == pytest.approx(139.8 * (0.8 if name == "gemma4-fp8" else 0.9))
    assert said.room_gib and said.sequence_gib


DENSE = {
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
}


# vLLM 0.26.0 on that card, 2026-11-23: GiB of weights and of KV cache, sequences.
SAID = {
    "qwen3-8b-longest": (15.27, 4.19, 1.03),
    "qwen3.6-bf16-long": (65.53, 55.23, 10.75),
    "qwen3.6-bf16-dflash3": (66.54, 36.21, 7.68),
    "qwen3.6-fp8-mtp3": (35.5, 84.79, 50.93),
    "qwen3.6-nvfp4-mtp2": (23.45, 37.41, 22.47),
}


@pytest.mark.parametrize("name", SAID)
def test_what_is_predicted_of_a_start_stands_beside_what_it_said(tmp_path, name: str) -> None:
    folder = tmp_path / CASES[name].checkpoint
    folder.mkdir()
    # The shapes of the others stand in the catalogue.
    (folder / "config.json").write_text(json.dumps(DENSE))
    case, said = fit.prediction(CASES[name], CARD, tmp_path, "0.26.0")
    assert said.room_gib and said.sequence_gib and said.context
    asked = read_back(recipe_of(case), command(case, tmp_path)[0])
    held = {term.name: term.gib for term in said.terms}
    overhead, weights = held.pop(OVERHEAD), sum(held.values())
    room = said.room_gib[1]
    cells = (
        *(name, f"{asked.sequences or 1024}", f"{asked.batched_tokens or 8192}"),
        *(f"{said.context}", f"{weights:.2f}", f"{overhead:.2f}", f"{room:.2f}"),
        *(f"{said.sequence_gib:.3f}", f"{room / said.sequence_gib:.2f}"),
    )
    assert f"| {' | '.join(cells)} |\n" in DOCUMENT
    own, kept, sequences = SAID[name]
    ratios = weights / own, room / kept, said.sequence_gib / (kept / sequences)
    rest = said.budget_gib - own - kept
    ends = (f"{own:.2f}", f"{rest:.2f}", f"{kept:.2f}", f"{sequences:.2f}")
    shown = " | ".join([name, *ends, *(f"{ratio:.3f}" for ratio in ratios)])
    assert f"| {shown} |\n" in DOCUMENT, shown


# One H100, 2026-11-25.
H100 = Card("NVIDIA H100 80GB HBM3", "580.159.04", "9.0", 79.1787109375, unified=False)
_NGRAM = json.dumps({"method": "ngram", "num_speculative_tokens": 3})
# The same card and version, 2026-11-24, then the H100: row, case, what was changed in it, and the
# same three figures.
LATER = [
    (CARD, "Gemma 4, FP8", "gemma4-fp8", {"gpu_memory_utilization": 0.32}, (24.68, 18.35, 6.30)),
    (CARD, "Qwen3-8B with EAGLE-3", "qwen3-8b-eagle3", {}, (15.77, 52.03, 11.25)),
    (
        *(CARD, "Qwen3.6, FP8, MTP of 3 tokens", "qwen3.6-fp8-mtp3"),
        *({"gpu_memory_utilization": 0.36}, (35.5, 9.36, 5.61)),
    ),
    (
        *(CARD, "Qwen3.6 with DFlash, 1024 sequences", "qwen3.6-bf16-dflash3"),
        *({"gpu_memory_utilization": 0.6}, (66.54, 8.25, 1.75)),
    ),
    (
        *(CARD, "Qwen3.6 with DFlash, 64 sequences", "qwen3.6-bf16-dflash3"),
        *({"gpu_memory_utilization": 0.58, "max_num_seqs": 64}, (66.54, 9.97, 2.11)),
    ),
    (
        *(H100, "Qwen3-8B with n-grams of 3, S = 64", "qwen3-8b"),
        *(("--speculative-config", _NGRAM, "--max-num-seqs", "64"), (15.27, 22.46, 4.99)),
    ),
    (
        *(H100, "Qwen3-8B, S = 256, T = 16384", "qwen3-8b"),
        *(("--max-num-seqs", "256", "--max-num-batched-tokens", "16384"), (15.27, 22.52, 5.00)),
    ),
]


def _shown(folder: Path, row: str, case: Case, card: Card, seen: tuple[float, ...]) -> str:
    """The row of the document: predicted and said, and their ratios."""
    eagle = {**DENSE, "num_hidden_layers": 1}
    configs = {case.checkpoint: SHAPES.get(case.checkpoint, DENSE), "qwen3-8b-eagle3": eagle}
    for name, config in configs.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
    said = predicted(case, card, folder, "0.26.0")
    assert said.room_gib and said.sequence_gib and said.budget_gib
    own, kept, sequences = seen
    held = {term.name: term.gib for term in said.terms}
    over = held.pop(OVERHEAD)
    pairs = (
        (sum(held.values()), own),
        (over, said.budget_gib - own - kept),
        (said.room_gib[1], kept),
        (said.sequence_gib, kept / sequences),
    )
    cells = [f"{one:.2f}, {other:.2f}" for one, other in pairs]
    ratios = [f"{one / other:.3f}" for one, other in (pairs[0], pairs[2], pairs[3])]
    return f"| {' | '.join([row, *cells, *ratios])} |"


@pytest.mark.parametrize(("card", "row", "name", "changed", "seen"), LATER)
def test_a_later_start_stands_beside_what_is_predicted_of_it(
    tmp_path,
    card: Card,
    row: str,
    name: str,
    changed: dict[str, object] | tuple[str, ...],
    seen: tuple[float, ...],
) -> None:
    case = CASES[name]
    if isinstance(changed, dict):
        case = replace(case, overrides={**case.overrides, **changed})
    else:
        case = replace(case, flags=changed)
    shown = _shown(tmp_path, row, case, card, seen)
    assert f"{shown}\n" in DOCUMENT, shown
    if card is H100:
        assert float(shown.split(" | ")[6]) == pytest.approx(1.0, abs=0.01)


def test_what_sglang_shares_out_stands_beside_what_is_predicted_of_it() -> None:
    """0.5.17 on that card, 2026-11-25: it found 78.50 GiB."""
    known = catalogue.load().knowledge
    spark = known.hardware["dgx-spark"]
    found = {
        key: replace(spark.memory_total_gib, value=value)
        for key, value in (("memory_total_gib", 78.50), ("system_gib", 0), ("engine_start_gib", 0))
    }
    machine = replace(spark, **found, reserve_gib=replace(spark.reserve_gib, value=0))
    size = replace(spark.memory_total_gib, value=16.381, unit="GB")
    model = Model("Qwen/Qwen3-8B", weights_gb=size, architecture=from_config(DENSE, "here"))
    recipe = replace(catalogue.load().recipes["mistral-small-4-119b-nvfp4-sglang"], model=model.id)
    said = fit_of(
        recipe,
        Knowledge({model.id: model}, {MACHINE: machine}),
        machine=MACHINE,
        asked=Serving(utilization=0.8, context=32768),
    )
    assert said.room_gib and said.sequence_gib
    rows = {
        "weights": (said.terms[0].gib, 15.28),
        "KV cache": (said.room_gib[1], 47.52),
        "one sequence": (said.sequence_gib, 47.52 / 345969 * 32768),
    }
    for name, (one, other) in rows.items():
        shown = f"| {name} | {one:.2f} | {other:.2f} | {one / other:.3f} |"
        assert f"{shown}\n" in DOCUMENT, shown


def test_a_figure_that_was_not_measured_is_refused() -> None:
    with pytest.raises(page.NotMeasured):
        page.figure({"sequences": None}, "sequences")
    assert page.row({"sequences": 11.8}, ("sequences", "kv_gib")) == ["11.80", "not measured"]


def test_memory_that_stays_does_not_move_the_end_of_a_main_process(monkeypatch) -> None:
    monkeypatch.setattr(server, "back", lambda *_: False)
    monkeypatch.setattr(
        server,
        "back_after",
        lambda card, before, began, limit_s=0.0: waited(lambda: False, began, limit_s),
    )
    one = server.Server.__new__(server.Server)
    one.environment = server.Environment("", Path(), CARD, {})
    one.before_gib = 0.0
    one.process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    one.process.kill()
    one.process.wait()
    seen = one._seen(lambda: None, limit_s=0.5)
    assert seen["main_s"] is not None
    assert seen["memory_s"] is None
    assert seen["left"] == [] and "killed_s" not in seen


def test_each_rank_believes_to_be_on_a_host_of_its_own(monkeypatch, tmp_path) -> None:
    class Started:
        target = Target("m", "unit", "http://127.0.0.1:1", "m", 1.0, start_timeout_s=9.0)

        def __init__(self, environment, name, argv, variables, before) -> None:
            self.card, self.argv, self.variables = environment.card, argv, variables
            self.before = before

    monkeypatch.setattr(ranks, "Server", Started)
    here = server.Environment("python3", tmp_path, CARD, {})
    both = [ranks._rank(here, tmp_path, number) for number in (0, 1)]
    for name in ("CUDA_VISIBLE_DEVICES", "NCCL_HOSTID"):
        assert len({one.variables[name] for one in both}) == 2
    assert [one.card.index for one in both] == [0, 1]
    # Memory that GPUs of one host share, and its multicast, are for one host.
    assert {one.variables["VLLM_ALLREDUCE_USE_SYMM_MEM"] for one in both} == {"0"}
    assert both[0].before[:2] == ("unshare", "--mount")
    assert "--headless" in both[1].argv and "--headless" not in both[0].argv


def _container(*entries: tuple[int, int, bytes]) -> bytes:
    """One of a compiled part: kind (1: PTX, 2: machine code), architecture and content of each."""
    body = b"".join(
        struct.pack("<HHIQ12xI", kind, 0, 32, len(code), made_for) + code
        for kind, made_for, code in entries
    )
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


@pytest.mark.parametrize(
    ("entries", "kept"),
    [
        ([(2, 80, b"a" * 8), (2, 90, b"b" * 8), (1, 90, b"c" * 8)], b"b"),
        ([(2, 100, b"a" * 8), (1, 80, b"b" * 8), (1, 89, b"c" * 8), (1, 100, b"d" * 8)], b"c"),
        ([(2, 80, b"a" * 8), (2, 120, b"b" * 8)], b""),
    ],
)
def test_the_code_of_other_gpus_is_zeroed_where_it_stands(
    entries: list[tuple[int, int, bytes]], kept: bytes
) -> None:
    whole = b"head" + _container(*entries) + b"between" + _container((2, 90, b"z" * 8)) + b"tail"
    found = parts.pruned(whole, 90)
    assert len(found) == len(whole)
    left = [letter for letter in b"abcd" if bytes([letter]) * 8 in found]
    assert (bytes(left), found[:4], found[-4:]) == (kept, b"head", b"tail")
    assert b"z" * 8 in found and b"between" in found


def test_what_a_machine_has_or_no_start_needs_is_not_packed() -> None:
    needed = ["vllm==0.26.0", "torch==2.11.0", "Typing_Extensions==4.1", "flashinfer-python==1",
              "uvicorn[standard]==0.52.1"]  # fmt: skip
    found = parts.missing(needed, {"torch", "typing-extensions"})
    assert list(found) == ["vllm==0.26.0", "uvicorn[standard]==0.52.1"]
