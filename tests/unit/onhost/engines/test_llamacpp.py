"""llama.cpp by its module: its command line, its parser's answers, its metrics, log and memory."""

from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from group_data.all import tools
from lockstep.checkpoints.architecture import element_bytes
from lockstep.checkpoints.known_checkpoints import KnownCheckpoint
from lockstep.core.errors import RecipeError
from lockstep.core.figures import Figure
from lockstep.deploy.checked import rehearse
from lockstep.fit import catalogue
from lockstep.fit.cluster_findings import cluster_findings
from lockstep.fit.command_checks import CommandCase
from lockstep.fit.fit import fit
from lockstep.inventory.bound_models import bind
from lockstep.inventory.host import HostPlan
from lockstep.inventory.settings import ModelData, Settings
from lockstep.lock.pins import CheckpointPin, FilePin, Pins
from lockstep.onhost.engine import log_phases
from lockstep.onhost.engines import ENGINES, counters
from lockstep.recipes import recipe_file
from lockstep.recipes.command import serve_command
from lockstep.recipes.sizing import serving
from lockstep.units.served_weights import weight_overrides

LLAMA = ENGINES["llamacpp"]
KNOWLEDGE = catalogue.load().knowledge
TEXT = """\
model: org/big-GGUF:UD-IQ2_M
container: some/llama:1
defaults: {host: 127.0.0.1, port: 30001, ctx_size: 8192, parallel: 2}
command: llama-server -hf {model} --host {host} --port {port} -c {ctx_size} -np {parallel}
"""
RECIPE = recipe_file.parse(TEXT, Path("big.yaml"))
FILE = "/data/snapshots/abc/UD-IQ2_M/big-UD-IQ2_M-00001-of-00002.gguf"
HUB = f"{Settings('s', {}).paths.hub_cache}/hub"
FOLDER = f"{HUB}/models--org--big-GGUF/snapshots/{40 * 'c'}"
PAGE = """\
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 38
llamacpp:tokens_predicted_total 12
llamacpp:n_decode_total 14
llamacpp:requests_processing 1
llamacpp:requests_deferred 2
"""


def test_the_file_takes_the_place_of_what_it_would_fetch_itself() -> None:
    assert serve_command(RECIPE, overrides={"model": FILE, "port": 31001}) == (
        *("llama-server", "--host", "127.0.0.1", "--port", "31001", "-c", "8192", "-np", "2"),
        *("--model", FILE, "--alias", "org/big-GGUF:UD-IQ2_M", "--metrics"),
    )


@pytest.mark.parametrize(
    ("words", "sees"), [((), True), (("--no-mmproj",), False), (("--mmproj", "/srv/x"), False)]
)
def test_what_sees_beside_the_model_is_passed_unless_it_is_refused(words, sees) -> None:
    # The first part of what was fetched is served.
    names = [f"UD-IQ2_M/big-UD-IQ2_M-0000{number}-of-00002.gguf" for number in (1, 2)]
    overrides = weights("big-BF16.gguf", *names, "mmproj-F16.gguf", words=words)
    assert overrides.pop("model") == f"{FOLDER}/{names[0]}"
    assert overrides == ({"mmproj": f"{FOLDER}/mmproj-F16.gguf"} if sees else {})
    command = " ".join(serve_command(RECIPE, overrides={**overrides, "model": FILE}))
    assert (f"--mmproj {FOLDER}/mmproj-F16.gguf" in command) is sees


@pytest.mark.parametrize(
    ("flags", "size"),
    [("", 2.0), ("-ctk q8_0 -ctv q8_0", 1.0625), ("--cache-type-k q8_0 -ctv q4_0", 0.8125)],
)
def test_widths_of_keys_and_values_and_the_context_of_all_slots_are_counted(flags, size) -> None:
    model_serving = serving(replace(RECIPE, command=f"{RECIPE.command} {flags}"))
    assert element_bytes(model_serving.kv_dtype) == size
    assert (model_serving.context, model_serving.sequences) == (8192, 2)
    assert model_serving.port == 30001


def test_an_inventory_is_rehearsed_before_anything_of_it_is_locked() -> None:
    settings = Settings("s", {"big": ModelData("big", "big")}, tools=tools)
    rehearse([HostPlan("spark1", settings, bind(settings, {"big": RECIPE}, {}))])


def test_a_recipe_without_a_command_is_written_in_its_own_flags() -> None:
    text = "model: org/big-GGUF:Q8_0\nruntime: llama-cpp\ndefaults: {max_model_len: 4096}\n"
    recipe = recipe_file.parse(text, Path("big.yaml"))
    assert serve_command(recipe, overrides={"model": FILE}) == (
        *("llama-server", "--model", FILE, "--ctx-size", "4096"),
        *("--alias", "org/big-GGUF:Q8_0", "--metrics"),
    )
    # It knows no share of the memory.
    with pytest.raises(RecipeError, match="no flag for gpu_memory_utilization"):
        serve_command(RECIPE, overrides={"gpu_memory_utilization": 0.5})


def test_it_needs_weights_and_cache_and_what_it_holds_beside() -> None:
    weights = Figure("weights", 20 * 2**30 / 1e9, "GB", "a test", "2026-11-22", "quoted")
    model = KnownCheckpoint(RECIPE.model, weights_gb=weights)
    verdict = fit(RECIPE, replace(KNOWLEDGE, checkpoints={model.id: model}))
    beside = KNOWLEDGE.hardware["dgx-spark"].gib("engine_start_gib")
    prompts, minimum = 8, 8
    assert verdict.needs_gib == pytest.approx(20 + beside + prompts + minimum)
    assert verdict.need is not None and not verdict.need.of_total


def test_it_serves_on_one_host_alone() -> None:
    findings = cluster_findings(CommandCase(RECIPE, KNOWLEDGE, {}, hosts=2))
    assert "llama.cpp serves a model on one host alone" in [item.message for item in findings]
    assert LLAMA.rank_recipe_keys(rank=1, size=2, master="10.0.0.1", port=1, copies=1) == {}


def weights(*names: str, words: tuple[str, ...] = ()) -> dict[str, str]:
    """The overrides of a checkpoint with these files."""
    files = tuple(FilePin(name, 1, 64 * "e") for name in names)
    pin = CheckpointPin("main", 40 * "c", files, partial=True)
    pins = Pins(checkpoints={"org/big-GGUF": pin})
    return weight_overrides(Settings("s", {}), RECIPE, pins, words)


FAULT = "recipe big: llama.cpp 0.7.0 refuses it: error: invalid argument: -c"


@pytest.mark.parametrize(
    ("code", "stderr", "faults", "unanswered"),
    [
        (0, "", [], "None"),
        (1, "noise\nerror: invalid argument: -c\n", [FAULT], "None"),
        # An image without the program answers nothing.
        (127, "", [], "exit 127"),
    ],
)
def test_its_own_program_reads_the_whole_command_line_and_loads_nothing(
    code, stderr, faults, unanswered
):
    runs = []

    def run(words, environment):
        runs.append((tuple(words), dict(environment)))
        if words[-1] == "--version":
            return CompletedProcess(words, 0, "", "version: 0.7.0 (build 11669, commit Debian)")
        return CompletedProcess(words, code, "usage", stderr)

    environment = {"LLAMA_ARG_CTX_SIZE": "2", "HF_HOME": "/data"}
    recipe = {"name": "big", "argv": ["llama-server", "-c", "1"], "environment": environment}
    answer = LLAMA.recipe_faults_in_image([recipe], run)
    assert runs[1] == (("llama-server", "-c", "1", "--help"), {"LLAMA_ARG_CTX_SIZE": "2"})
    assert (answer["version"], answer["faults"]) == ("0.7.0", faults)
    assert unanswered in str(answer["unanswered"])


def test_its_counters_are_read_without_a_total_of_requests() -> None:
    reading = counters(PAGE)
    assert (reading.outstanding, reading.generated_tokens) == (3, 12)
    assert reading.finished_requests is None
    assert reading.moving == {"llamacpp:n_decode_total": 14.0, "llamacpp:prompt_tokens_total": 38.0}
    # Its context stands in its list of models.
    assert LLAMA.context_in_model_card({"id": "a", "meta": {"n_ctx": 4096}}) == 4096
    assert LLAMA.context_in_model_card({"id": "a"}) is None


def test_its_log_tells_how_far_a_start_is() -> None:
    phase_by_line = {
        "0.00.1.2 I srv    load_model: loading model '/x.gguf'": "loading weights",
        "0.01.1.2 I cmn          init: llama threadpool init, n_threads = 2": "weights loaded",
        "0.02.1.2 I srv  llama_server: listening on http://127.0.0.1:8099": "port open",
    }
    for line, phase in phase_by_line.items():
        assert log_phases.announced_phase(line) == phase
