"""Every moving input is found once, contradictions are refused; the name of an engine."""

from dataclasses import replace
from pathlib import Path

import pytest
from a_spark import pins_for, spark

from lockstep.core.errors import InventoryError, ResolveError
from lockstep.deploy.plan import plan_hosts
from lockstep.fit import catalogue
from lockstep.host.desired_state import DesiredState
from lockstep.inventory.bound_models import BoundModel, bind
from lockstep.inventory.host import HostPlan
from lockstep.inventory.settings import ExpectedMachine, ModelData, Settings, VenvEngine, WebUi
from lockstep.lock import moving
from lockstep.lock.engine_id import engine_id
from lockstep.lock.lock_items import wanted_items
from lockstep.lock.moving import CheckpointItem, GitItem, ImageItem, PrecompiledItem, PythonItem
from lockstep.lock.packages import engine_sets
from lockstep.lock.pins import CheckpointPin, ImagePin, Pins
from lockstep.recipes import recipe_file
from lockstep.units.model_variants import variants

COMMIT = "0123456789abcdef0123456789abcdef01234567"

TRIPLE = ("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache")
FORK = GitItem("https://github.com/juliendenize/vllm.git", "fix_mistral_parsing")
TRANSFORMERS = GitItem("https://github.com/huggingface/transformers.git", "HEAD", COMMIT)
PINNED = f"transformers @ git+{TRANSFORMERS.url}@{COMMIT}"

CONTAINER = """
model: org/main
model_revision: v1
container: registry.example/engine:nightly
command: vllm serve {model} --port 8001
lockstep:
  draft: {model: org/draft, revision: v3}
  borrow:
    - {model: org/base, files: [config.json]}
"""
FALLBACK = """
model: org/main
container: registry.example/engine:stable
command: vllm serve {model} --port 8001
"""
VENV = """
model: /srv/models/local
command: vllm serve {model} --port 8002
"""

#: How vLLM looks for weights where nothing is said of it.
AUTO = ("consolidated*.safetensors or *.safetensors or *.bin or *.pt",)
Host = tuple[Settings, tuple[BoundModel, ...]]


def host(name: str = "spark1", recipe_texts: dict[str, str] | None = None, **keys: object) -> Host:
    texts = {"container": CONTAINER, "fallback": FALLBACK, "venv": VENV} | (recipe_texts or {})
    recipes = {name: recipe_file.parse(text, Path(f"{name}.yaml")) for name, text in texts.items()}
    models = {
        "big": ModelData(recipe="container", unit="big", fallback="fallback"),
        "small": ModelData(recipe="venv", unit="small"),
    }
    settings = Settings(name=name, **({"models": models, "tools": {"uv": "uv"}} | keys))  # type: ignore[arg-type]
    return settings, bind(settings, recipes, {})


def one_model(text: str, **keys: object) -> Host:
    """A host with one model, of this recipe."""
    models = {"big": ModelData(recipe="container", unit="big")}
    return host(recipe_texts={"container": text}, models=models, **keys)


def of(section: str, *hosts: Host) -> tuple[moving.Item, ...]:
    return tuple(item for item in wanted_items(hosts) if item.section == section)


def test_everything_that_moves_is_found_and_each_thing_once() -> None:
    requirements = ("torch==2.10.0+cu130", "torchvision", "transformers==5.4.0", "mistral_common")
    of_fork = PythonItem(
        "engine-build", (), "aarch64", "3.12", trees=(FORK,), build=True, exclude_newer="fork"
    )
    items = wanted_items([host("spark1", packages=("jq",)), host("spark2", packages=("git", "jq"))])
    expected_items = {
        PythonItem("uv", ("uv",), "aarch64", "3.12"),
        replace(
            of_fork, name="engine", requirements=(*requirements, *TRIPLE), agree=TRIPLE, build=False
        ),
        of_fork,
        FORK,
        PrecompiledItem(FORK, "https://github.com/vllm-project/vllm.git", "aarch64", "cu130"),
        ImageItem("ghcr.io/open-webui/open-webui:v0.12.4", "aarch64"),
        ImageItem("registry.example/engine:nightly", "aarch64"),
        ImageItem("registry.example/engine:stable", "aarch64"),
        CheckpointItem("org/main", "v1", formats=AUTO),
        CheckpointItem("org/draft", "v3", formats=AUTO),
        CheckpointItem("org/base", "main", ("config.json",)),
    }
    assert set(items) == expected_items and len(items) == len(expected_items)


def test_without_a_venv_model_nothing_of_the_engine_is_wanted() -> None:
    items = wanted_items([one_model(CONTAINER, webui=WebUi(enabled=False))])
    # A disabled web UI needs no image.
    keys = [item.key for item in items if item.section != "checkpoints"]
    assert keys == ["uv", "registry.example/engine:nightly"]


def test_a_fork_without_compiled_parts_and_a_release_want_no_wheel_of_them() -> None:
    for engine in (VenvEngine(precompiled=False), VenvEngine(git=None, release="vllm==0.32.0")):
        assert of("precompiled", host(engine=engine)) == ()
    # A fixed commit is wanted as it is.
    at_commit = host(engine=VenvEngine(commit=COMMIT))
    assert of("git", at_commit) == (replace(FORK, commit=COMMIT),)


def test_the_inventorys_image_replaces_that_of_recipe_and_fallback() -> None:
    digest = "registry.example/mine@sha256:" + "a" * 64
    data = ModelData(recipe="container", unit="big", fallback="fallback", image=digest)
    wanted_items = of("images", host(models={"big": data}, webui=WebUi(enabled=False)))
    assert wanted_items == (ImageItem(digest, "aarch64"),)


def test_a_released_vllm_is_one_of_the_packages() -> None:
    engine = VenvEngine(release="vllm >= 0.20", torch="torch>=2.10", torchvision=None)
    requirements = ("torch>=2.10", "vllm>=0.20", "mistral_common", *TRIPLE)
    whole = PythonItem("engine", requirements, "aarch64", "3.12", agree=TRIPLE)
    assert engine_sets(host(engine=engine)[0]) == (whole,)
    # It decides on what it needs unless something is said.
    (whole,) = engine_sets(host(engine=VenvEngine(git=None, flashinfer=False))[0])
    assert (whole.requirements[:3], whole.agree) == (("torch", "torchvision", "vllm"), ())


def test_a_day_that_is_named_counts_for_a_release_too_and_none_for_a_fork():
    release = engine_sets(host(engine=VenvEngine(release="vllm", exclude_newer="2026-04-01"))[0])
    fork = engine_sets(host(engine=VenvEngine(exclude_newer=None))[0])
    assert (release[0].exclude_newer, fork[0].exclude_newer) == ("2026-04-01", None)


def test_transformers_is_of_the_index_or_one_commit_with_a_release_too() -> None:
    settings, _ = host(engine=VenvEngine(release="vllm", transformers=PINNED))
    assert [item.trees for item in engine_sets(settings)] == [(TRANSFORMERS,), (TRANSFORMERS,)]
    settings, _ = host(engine=VenvEngine(transformers="transformers<5"))
    whole, _ = engine_sets(settings)
    assert whole.trees == (FORK,) and "transformers<5" in whole.requirements


def test_who_asks_for_no_revision_takes_the_one_another_recipe_asks_for() -> None:
    two_models = {"main": ModelData(recipe="fallback", unit="a", port=1), **host()[0].models}
    assert of("checkpoints", host(models=two_models))[0].revision == "v1"


def test_borrowed_files_of_one_repository_are_joined_and_a_whole_one_includes_them() -> None:
    more = CONTAINER.replace("org/main", "org/other").replace("config.json", "tokenizer.json")
    texts = {"more": more, "whole": "model: org/base\ncommand: vllm serve {model} --port 9\n"}
    borrowing = {
        "one": ModelData(recipe="container", unit="one"),
        "two": ModelData(recipe="more", unit="two", port=8003),
    }
    wanted_items = of("checkpoints", host(recipe_texts=texts, models=borrowing))
    assert CheckpointItem("org/base", "main", ("config.json", "tokenizer.json")) in wanted_items
    with_whole = {**borrowing, "three": ModelData(recipe="whole", unit="three")}
    joined_model = CheckpointItem("org/base", "main", ("config.json", "tokenizer.json"), AUTO)
    assert joined_model in of("checkpoints", host(recipe_texts=texts, models=with_whole))


def refusal(*hosts: Host) -> str:
    with pytest.raises(InventoryError) as error:
        wanted_items(hosts)
    return str(error.value)


def test_one_thing_that_is_wanted_in_two_ways_is_refused() -> None:
    texts = {"fallback": FALLBACK + "model_revision: v2\n"}
    message = refusal(host(recipe_texts=texts))
    assert message.startswith("spark1: org/main is wanted at two revisions; found v1 and v2. Pin")
    settings, models = host("spark2")
    other_host = (replace(settings, expected=ExpectedMachine(architecture="x86_64")), models)
    assert refusal(host("spark1"), other_host).startswith(
        "spark2: uv is wanted in two ways; found architecture x86_64 here, architecture aarch64 on"
    )


@pytest.mark.parametrize(
    ("more", "files"),
    [
        ("", (":Q4_K_M", ":mmproj?")),
        ("lockstep: {vision: true, more_files: [a/*]}", (":Q4_K_M", ":mmproj", "a/*")),
        ("lockstep: {vision: false}", (":Q4_K_M",)),
        ("command: llama-server --port 1 --no-mmproj", (":Q4_K_M",)),
        ("command: llama-server --port 1 --mmproj see.gguf", (":Q4_K_M", "see.gguf")),
    ],
)
def test_one_quantisation_of_a_gguf_repository_is_wanted_with_what_sees_and_must_be_named(
    more: str, files: tuple[str, ...]
):
    text = "model: org/gguf%s\ncontainer: a/b:1\nruntime: llama-cpp\ndefaults: {port: 1}\n"
    named_items = of("checkpoints", one_model(text % ":Q4_K_M" + more))
    assert named_items == (CheckpointItem("org/gguf", "main", files),)
    message = refusal(one_model(text % "" + more))
    assert "llama.cpp serves one GGUF model of a repository" in message


@pytest.mark.parametrize(
    ("engine", "flag", "repository", "formats"),
    [
        ("vllm serve", "--load-format=mistral", "org/main", ("consolidated*.safetensors",)),
        # What a loader of somebody else's takes, nobody knows.
        ("vllm serve", "--load-format b12x", "org/main", ()),
        ("sglang serve --model-path", "", "mistralai/Mistral-Small-4-119B-NVFP4", AUTO),
    ],
)
def test_each_engines_loader_decides_in_which_format_weights_are_wanted(
    engine: str, flag: str, repository: str, formats: tuple[str, ...]
):
    text = f"model: {repository}\ncontainer: a/b:1\ncommand: {engine} {{model}} {flag} --port 1"
    items = of("checkpoints", one_model(text))
    assert items == (CheckpointItem(repository, "main", formats=formats),)


def test_gguf_files_are_refused_for_an_engine_that_serves_none() -> None:
    text = "model: org/gguf:Q4_K_M\ncontainer: a/b:1\ncommand: vllm serve --port 1"
    assert "container.yaml: vLLM serves no GGUF" in refusal(one_model(text))


@pytest.mark.parametrize(
    ("experts", "guard"),
    [("quantised", "marlin"), ("plain", "triton"), ("none", None), (None, None)],
)
def test_the_lock_decides_where_no_recipe_says_whether_there_are_experts(experts, guard):
    """By what the checkpoint's config.json says, in the plan and in the unit alike."""
    settings, models = one_model(FALLBACK, webui=WebUi(enabled=False))
    image = ImagePin("sha256:" + 64 * "1", "aarch64", 1)
    checkpoint = CheckpointPin("main", COMMIT, (), experts=experts)
    pins = Pins(
        images={"registry.example/engine:stable": image}, checkpoints={"org/main": checkpoint}
    )
    host_plan = HostPlan("spark1", settings, models)
    codes = {item.code for item in plan_hosts([host_plan], pins, catalogue.load()).findings}
    assert ("guard-unknown" in codes) is (experts is None)
    plan = DesiredState(host_plan, pins).plan
    [variant] = variants(plan.settings, plan.models, pins, engine_id="")
    argv = list(variant.engine_argv)
    assert (argv[argv.index("--moe-backend") + 1] if "--moe-backend" in argv else None) == guard


PLAN = spark()
PINS = pins_for(PLAN)


def identity(**data: object) -> str:
    plan = spark(**data)
    return engine_id(plan.settings, pins_for(plan))


def test_an_engines_name_is_of_its_content_and_not_of_where_that_comes_from():
    mirror = {"python_index": "http://10.0.0.5/simple", "git": {"https://": "git://mirror/"}}
    assert identity(sources=mirror) == identity()


@pytest.mark.parametrize(
    "data",
    [
        {"python": "3.13"},
        {"engine": {"commit": 40 * "b"}},
        {"engine": {"transformers": PINNED}},
        {"engine": {"precompiled_commit": 40 * "d"}},
        {"engine": {"build_environment": {"MAX_JOBS": "4"}}},
    ],
)
def test_what_the_inventory_says_of_the_engine_changes_it(data: dict[str, object]):
    assert identity(**data) != identity()


def test_another_file_of_a_package_or_of_what_builds_it_changes_it():
    for name in ("engine", "engine-build"):
        [first, *other_packages] = PINS.python[name].packages
        packages = (replace(first, sha256=64 * "0"), *other_packages)
        python = {**PINS.python, name: replace(PINS.python[name], packages=packages)}
        assert engine_id(PLAN.settings, replace(PINS, python=python)) != identity()


@pytest.mark.parametrize("part", ["git", "python", "precompiled"])
def test_an_unresolved_part_is_refused(part: str):
    with pytest.raises(ResolveError, match="not resolved"):
        engine_id(PLAN.settings, replace(PINS, **{part: {}}))
