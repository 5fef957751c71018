"""From inventory data and recipes to what each unit runs, and what restarts it."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jinja2 import FileSystemLoader

from lockstep.core.errors import LockstepError, RecipeError, ResolveError
from lockstep.files import templating
from lockstep.inventory.bound_models import BoundModel, bind
from lockstep.inventory.cluster import ClusterData, ClusterMembers, Member
from lockstep.inventory.settings import ModelData, Settings, WebUi
from lockstep.lock.pins import CheckpointPin, ImagePin, Pins
from lockstep.recipes.recipe_file import parse
from lockstep.system.folders import wanted_restart_key
from lockstep.units.model_units import model_units, webui_command
from lockstep.units.model_variants import Variant, unit_names, variants

RECIPE = """
recipe_version: "2"
model: org/model
runtime: vllm
defaults: {port: 8000, gpu_memory_utilization: 0.5}
command: vllm serve {model} --port {port} --gpu-memory-utilization {gpu_memory_utilization}
lockstep:
  moe: true
  memory: {value: 40, source: here, date: 2026-11-21, kind: computed}
"""
CONTAINER = RECIPE.replace("runtime: vllm", "runtime: vllm\ncontainer: ghcr.io/a/b:main")
PINS = Pins(
    images={"ghcr.io/a/b:main": ImagePin("sha256:" + "1" * 64, "aarch64", 1)},
    checkpoints={
        name: CheckpointPin("main", digit * 40, ())
        for name, digit in (("org/model", "a"), ("org/draft", "d"), ("org/base", "b"))
    },
)
OTHER_IMAGE = {"ghcr.io/a/b:main": ImagePin("sha256:" + "2" * 64, "aarch64", 1)}
MODEL = ModelData(recipe="main", unit="engine")


def settings(**models: ModelData) -> Settings:
    return Settings(name="spark", models=models)


def bound_models(data: Settings, **texts: str) -> tuple[BoundModel, ...]:
    catalogue = {name: parse(text, Path(f"{name}.yaml")) for name, text in texts.items()}
    return bind(data, catalogue, {})


def make_variants(
    data: Settings | None = None, pins: Pins = PINS, engine_id: str = "0" * 12, **texts: str
) -> tuple[Variant, ...]:
    data = data or settings(model=MODEL)
    models = bound_models(data, **(texts or {"main": RECIPE}))
    return variants(data, models, pins, engine_id=engine_id)


def make_variant(**arguments: Any) -> Variant:
    (variant,) = make_variants(**arguments)
    return variant


@pytest.mark.parametrize("text", [RECIPE, CONTAINER])
def test_the_freeze_guard_is_a_flag_that_a_recipe_may_refuse(text: str) -> None:
    has = make_variant(main=text)
    assert "--moe-backend" in has.argv
    refusing = settings(model=replace(MODEL, overrides={"moe_backend": False}))
    lacks = make_variant(data=refusing, main=text)
    assert "--moe-backend" not in lacks.argv
    assert lacks.identity != has.identity
    # A variable that guards nothing is not claimed beside the flag.
    variant = make_variant(main=RECIPE + "env: {VLLM_FLASHINFER_MOE_BACKEND: latency}\n")
    assert not [name for name in variant.environment if "MOE" in name]


def test_sparkruns_names_are_what_this_start_knows() -> None:
    """The port is the inventory's; the model's folder is what a container sees too."""
    keys = ("model_path", "model_revision", "num_nodes", "node_rank", "node_host")
    env = ", ".join(f"{key.upper()}: '{{launch.{key}}}'" for key in keys)
    text = f"{CONTAINER}env: {{PORT: '{{config.port}}', C: '{{launch.runtime_cache_dir}}', {env}}}"
    data = settings(model=replace(MODEL, port=9))
    environment = make_variant(data=data, main=text).environment
    hub = data.paths.hub_cache
    snapshot = f"{hub}/hub/models--org--model/snapshots/{'a' * 40}"
    values = ["9", snapshot, "a" * 40, "1", "0", "127.0.0.1"]
    assert [environment[key.upper()] for key in ("port", *keys)] == values
    assert environment["C"] == environment["XDG_CACHE_HOME"].rstrip("/") == "/cache/" + "1" * 12
    members = tuple(Member(f"s{rank}", f"10.0.0.{rank}", ()) for rank in range(2))
    group = ClusterMembers("pair", 1, members, ClusterData(("s0", "s1")), "x", ())
    ranks = [replace(bound_model, group=group) for bound_model in bound_models(data, main=text)]
    [rank] = variants(data, tuple(ranks), PINS, engine_id="")
    names = ("NUM_NODES", "NODE_RANK", "NODE_HOST")
    assert [rank.environment[name] for name in names] == ["2", "1", "10.0.0.1"]


def test_borrowed_files_make_the_model_a_folder_that_keeps_its_name() -> None:
    borrow = "  borrow: [{model: org/base, files: [config.json]}]\n"
    variant = make_variant(main=RECIPE + borrow)
    folder = f"/data/models/huggingface/lockstep-merged/org--model/{'a' * 40}"
    assert variant.argv[2] == folder
    assert "--revision" not in variant.argv
    assert variant.served_model.served_name == "org/model"
    later = replace(PINS.checkpoints["org/base"], commit="c" * 40)
    pins = replace(PINS, checkpoints={**PINS.checkpoints, "org/base": later})
    assert make_variant(main=RECIPE + borrow, pins=pins).identity != variant.identity


def test_a_fallback_is_a_model_of_its_own_that_shares_nothing_but_the_port() -> None:
    data = settings(model=replace(MODEL, fallback="spare", launcher="/data/run.sh"))
    second = CONTAINER.replace("0.5", "0.4")
    main, spare = make_variants(data, main=CONTAINER, spare=second)
    assert (main.name, main.unit, main.launcher) == ("model", "engine", "/data/run.sh")
    assert (spare.name, spare.unit) == ("model-fallback", "engine-fallback")
    assert spare.launcher == "/data/run-fallback.sh"
    assert (main.served_model.fallback, spare.served_model.fallback) == ("model-fallback", None)
    assert main.served_model.url == spare.served_model.url and main.identity != spare.identity
    names = unit_names(bound_models(data, main=CONTAINER, spare=second))
    assert names == ("engine.service", "engine-fallback.service")


def test_a_fallback_may_be_of_another_engine_in_a_place_of_its_own() -> None:
    """One engine's fault need not be in another one."""
    image = "docker.io/lmsysorg/sglang:v1"
    text = CONTAINER.replace("runtime: vllm", "runtime: sglang")
    text = text.replace("vllm serve {model}", "sglang serve --model-path {model}")
    pin = ImagePin("sha256:" + "2" * 64, "aarch64", 1)
    pins = replace(PINS, images={**PINS.images, image: pin})
    # The image that the inventory names holds the model's engine.
    data = settings(model=replace(MODEL, fallback="spare", image=image))
    main, spare = make_variants(data, pins, main=text, spare=CONTAINER)
    assert (main.image or "").endswith("2" * 64) and (spare.image or "").endswith("1" * 64)
    assert (main.engine_argv[0], spare.engine_argv[0]) == ("sglang", "vllm")
    main, spare = make_variants(data, pins, main=text, spare=RECIPE)
    assert spare.image is None and spare.argv[0].endswith("/current/venv/bin/vllm")
    # So is the share of the memory that the inventory gives: other engines take it of other things.
    less = replace(data.models["model"], overrides={"gpu_memory_utilization": 0.3})
    main, spare = make_variants(settings(model=less), pins, main=text, spare=RECIPE)
    assert "0.3" in main.argv and "0.5" in spare.argv
    fallback_data = replace(less, fallback_overrides={"gpu_memory_utilization": 0.2})
    main, spare = make_variants(settings(model=fallback_data), pins, main=text, spare=RECIPE)
    assert "0.3" in main.argv and "0.2" in spare.argv
    alike = replace(MODEL, fallback="spare", overrides={"gpu_memory_utilization": 0.3})
    main, spare = make_variants(settings(model=alike), main=CONTAINER, spare=RECIPE)
    assert "0.3" in main.argv and "0.3" in spare.argv


@pytest.mark.parametrize(
    ("name", "unit", "webui"),
    [
        ("model-fallback", "other", "open-webui"),
        ("other", "engine-fallback", "open-webui"),
        ("other", "other", "engine"),
    ],
)
def test_a_name_that_a_model_or_its_fallback_needs_is_refused_where_it_is_taken(name, unit, webui):
    taking = ModelData(recipe="spare", unit=unit, port=8001)
    data = settings(**{"model": replace(MODEL, fallback="spare"), name: taking})
    with pytest.raises(LockstepError, match="taken"):
        make_variants(replace(data, webui=WebUi(unit=webui)), main=RECIPE, spare=RECIPE)


def test_what_demands_a_restart_changes_what_a_variant_is_and_nothing_else_does() -> None:
    first = make_variant()
    slower = settings(model=replace(MODEL, start_timeout_s=60))
    renamed_unit = settings(model=replace(MODEL, unit="engine2"))
    for data in (slower, renamed_unit):
        assert make_variant(data=data).identity == first.identity
    weights = {"org/model": CheckpointPin("main", "e" * 40, ())}
    changed_variants = [
        make_variant(engine_id="1" * 12),
        make_variant(data=settings(model=replace(MODEL, port=8001))),
        make_variant(data=settings(model=replace(MODEL, overrides={"max_model_len": 1024}))),
        make_variant(main=RECIPE + "env: {A: b}\n"),
        make_variant(pins=replace(PINS, checkpoints=weights)),
    ]
    assert len({first.identity, *(item.identity for item in changed_variants)}) == 6
    # A container's engine is its image, not the venv beside it.
    image = make_variant(main=CONTAINER).identity
    assert make_variant(main=CONTAINER, engine_id="1" * 12).identity == image
    assert make_variant(main=CONTAINER, pins=replace(PINS, images=OTHER_IMAGE)).identity != image


@pytest.mark.parametrize("text", [RECIPE, CONTAINER])
def test_what_one_build_of_an_engine_compiled_is_read_by_no_other_one(text: str) -> None:
    """And a rollback finds its own again; code of the weights' repository is not compiled."""
    own_environment = make_variant(main=text).environment
    pins = replace(PINS, images=OTHER_IMAGE)
    other_environment = make_variant(main=text, engine_id="2" * 12, pins=pins).environment
    home = "/cache" if text is CONTAINER else "/var/lib/lockstep/.cache"
    assert own_environment["HF_MODULES_CACHE"] == other_environment["HF_MODULES_CACHE"]
    # Whatever compiles keeps it where it is kept: the driver's own default is a container's HOME.
    caches = {name for name, place in own_environment.items() if "CACHE" in name and "/" in place}
    caches |= {"FLASHINFER_WORKSPACE_BASE"}
    assert len(caches) > 8
    for name in caches - {"HF_MODULES_CACHE"}:
        assert own_environment[name].startswith(f"{home}/")
        assert other_environment[name].startswith(f"{home}/222222222222")
    # The tree of a venv has its compiled Python beside it; a container's goes with the container.
    python_places = {"/cache/111111111111/python"} if text is CONTAINER else {None}
    assert {own_environment.get("PYTHONPYCACHEPREFIX")} == python_places


def test_the_gate_asks_for_what_the_engine_does_and_for_the_published_memory() -> None:
    def need(**arguments: Any) -> float:
        return make_variant(**arguments).served_model.memory_need.available(121.69)

    half, minimum = 0.5 * 121.69 + 3.6, 8
    # More than the 40 GiB that the recipe states.
    assert need() == pytest.approx(half + minimum)
    assert need(main=RECIPE.replace("value: 40", "value: 67")) == 67 + minimum
    less = settings(model=replace(MODEL, overrides={"gpu_memory_utilization": 0.2}))
    assert need(data=less) == pytest.approx(0.2 * 121.69 + 3.6 + minimum)


def test_the_host_reaches_its_own_engine_wherever_that_listens() -> None:
    for bind_to, address in (("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("fd00::7", "[fd00::7]")):
        variant = make_variant(data=settings(model=replace(MODEL, bind=bind_to)))
        assert variant.served_model.url == f"http://{address}:8000"


def test_a_recipe_with_a_secret_is_refused_without_showing_it() -> None:
    for text, name_shown in (
        (RECIPE + "env: {HF_TOKEN: hf_abc}\n", "env.HF_TOKEN"),
        (RECIPE.replace("{port} --gpu", "{port} --api-key abc --gpu"), "--api-key"),
    ):
        with pytest.raises(RecipeError, match=name_shown) as error:
            make_variant(main=text)
        assert "abc" not in str(error.value)


@pytest.mark.parametrize("text", [RECIPE, CONTAINER, RECIPE + "  draft: {model: org/other}\n"])
def test_nothing_without_a_pin_gets_into_a_unit(text: str) -> None:
    pins = PINS if "org/other" in text else Pins()
    with pytest.raises(ResolveError, match="not resolved"):
        make_variant(main=text, pins=pins)


TOOLS = RECIPE.replace("{port}", "{port} --enable-auto-tool-choice --tool-call-parser hermes")
VECTORS = RECIPE.replace("{port}", "{port} --runner pooling")


def webui_variables(first: str, second: str = VECTORS) -> dict[str, str]:
    """The variables of Open WebUI on a host with a model of each recipe."""
    data = settings(model=MODEL, second=ModelData(recipe="second", unit="second", port=8001))
    pins = replace(PINS, images={data.webui.image: ImagePin("sha256:" + "1" * 64, "aarch64", 1)})
    words = webui_command(data, make_variants(data, pins, main=first, second=second), pins)
    pairs = [words[number + 1] for number, word in enumerate(words) if word == "--env"]
    return dict(pair.split("=", 1) for pair in pairs)


def test_open_webui_switches_to_no_model_unasked_and_offers_tools_where_each_model_takes_them():
    variables = webui_variables(TOOLS)
    # Not the key of this host: on loopback nobody is asked.
    assert variables["OPENAI_API_KEYS"] == "none"
    assert variables["OPENAI_API_BASE_URLS"] == "http://127.0.0.1:8090/v1"
    assert (variables["DEFAULT_MODELS"], variables["TASK_MODEL_EXTERNAL"]) == ("auto", "auto")
    assert "DEFAULT_MODEL_METADATA" not in variables
    metadata = webui_variables(TOOLS, RECIPE)["DEFAULT_MODEL_METADATA"]
    assert metadata == '{"capabilities":{"builtin_tools":false}}'


UNIT = "engine.service"
OTHER = ModelData(recipe="spare", unit="other", port=8001)


def key(data: Settings | None = None, **texts: str) -> str:
    data = data or settings(model=MODEL)
    files = model_units(data, make_variants(data, **({"main": RECIPE} | texts)))
    return wanted_restart_key(files, UNIT)


@pytest.mark.parametrize(
    ("line", "restarts"),
    [("Nice=5", True), ("# Why this is so.", False), ("TimeoutStopSec=90", False)],
)
def test_a_line_of_the_template_restarts_what_was_started_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, restarts: bool
) -> None:
    earlier_key = key()
    shutil.copytree(templating.FOLDER, tmp_path, dirs_exist_ok=True)
    environment = templating.environment()
    monkeypatch.setattr(environment, "loader", FileSystemLoader(tmp_path))
    # Its cache would give the text of before, here and to the next test.
    monkeypatch.setattr(environment, "cache", None)
    template = tmp_path / "units/model.service.j2"
    text = template.read_text()
    assert "\nKillMode=mixed\n" in text
    template.write_text(text.replace("\nKillMode=mixed\n", f"\n{line}\nKillMode=mixed\n"))
    assert (key() != earlier_key) is restarts


def test_a_model_restarts_only_for_what_its_own_process_gets() -> None:
    """Conflicts=, After= and time-outs are systemd's own, and in force after a reload."""
    assert key(settings(model=MODEL, more=OTHER), spare=RECIPE) == key()
    assert key(settings(model=replace(MODEL, start_timeout_s=60))) == key()
    assert key(settings(model=replace(MODEL, port=8002))) != key()
