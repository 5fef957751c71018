"""Which targets get a proxy that merges roles, on which ports, and what makes it start anew."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from a_spark import environment

from lockstep.core.errors import InventoryError
from lockstep.files import programs
from lockstep.files.managed_file import ManagedFile
from lockstep.inventory.bound_targets import BoundTarget, bind, check_tools
from lockstep.inventory.settings import Floor, Settings, TargetData
from lockstep.lock.packages import tool_sets
from lockstep.lock.pins import ImagePin, ModelPin, Pins
from lockstep.recipes.recipe_file import parse
from lockstep.units.model_units import webui_command, webui_unit
from lockstep.units.proxy_unit import proxy_units
from lockstep.units.targets_json import targets_file
from lockstep.units.variants import Variant, key_users, unit_names, variants

RECIPE = """
recipe_version: "2"
model: org/model
runtime: {engine}
defaults: {{port: 8000, host: 127.0.0.1}}
command: {command} {{model}} --port {{port}} --host {{host}}
lockstep:
  moe: true
  merges_roles: {merges}
  memory: {{value: 40, source: here, date: 2026-11-21, kind: computed}}
"""
VLLM = {"engine": "vllm", "command": "vllm serve"}
TOOLS = {"httpx2": "httpx2", "uvicorn": "uvicorn"}
TARGET = TargetData(recipe="strict", unit="engine")


def settings(tools: dict[str, str] = TOOLS, **targets: TargetData) -> Settings:
    return Settings(name="spark", targets=targets or {"model": TARGET}, tools=tools)


def bound(data: Settings) -> tuple[BoundTarget, ...]:
    texts = {
        "strict": RECIPE.format(merges="false", **VLLM),
        "merging": RECIPE.format(merges="true", **VLLM),
        "vectors": RECIPE.format(
            merges="true", engine="vllm", command="vllm serve --runner pooling"
        ),
        "unknown": RECIPE.format(merges="null", **VLLM),
    }
    catalogue = {name: parse(text, Path(f"{name}.yaml")) for name, text in texts.items()}
    return bind(data, catalogue, {})


def pins(data: Settings, version: str = "1.0") -> Pins:
    return Pins(
        python={item.key: environment(item, version) for item in tool_sets(data)},
        models={"org/model": ModelPin("main", "a" * 40, ())},
    )


def made(data: Settings) -> tuple[Variant, ...]:
    targets = bound(data)
    return variants(data, targets, pins(data), engine_id="0" * 12)


def only(data: Settings, version: str = "1.0") -> ManagedFile:
    (file,) = proxy_units(data, made(data), pins(data, version))
    return file


def generation(file: ManagedFile) -> str:
    return file.text.partition("LOCKSTEP_GENERATION=")[2].partition("\n")[0]


@pytest.mark.parametrize("recipe", ["merging", "unknown"])
def test_an_engine_that_is_not_known_to_refuse_has_the_port_itself(recipe: str) -> None:
    data = settings(tools={}, model=replace(TARGET, recipe=recipe))
    (variant,) = made(data)
    assert (variant.target.port, variant.engine_port, variant.proxy_unit) == (8000, None, None)
    assert variant.engine_url == variant.url == "http://127.0.0.1:8000"
    assert variant.argv[3:7] == ("--port", "8000", "--host", "127.0.0.1")
    assert proxy_units(data, (variant,), pins(data)) == ()
    assert unit_names(bound(data)) == ("engine.service",)


def test_an_engine_that_refuses_moves_behind_the_proxy() -> None:
    data = settings(model=replace(TARGET, bind="0.0.0.0"))
    (variant,) = made(data)
    # Whoever the API is open to, the engine itself is not.
    assert variant.argv[3:7] == ("--port", "9000", "--host", "127.0.0.1")
    assert (variant.url, variant.engine_url) == ("http://127.0.0.1:8000", "http://127.0.0.1:9000")
    file = only(data)
    assert file.path == "/etc/systemd/system/engine-roles.service"
    assert (
        "ExecStart=/usr/local/lib/lockstep/environments/tools/bin/python "
        "/usr/local/lib/lockstep roles-proxy --listen 0.0.0.0 --port 8000 "
        "--engine http://127.0.0.1:9000 --merge --key\n"
    ) in file.text
    assert "IPAddressDeny" not in file.text
    assert "IPAddressDeny=any\nIPAddressAllow=localhost\n" in only(settings()).text
    assert unit_names(bound(data)) == ("engine.service", "engine-roles.service")


def test_an_engine_open_to_others_moves_behind_a_proxy_that_asks_for_the_key() -> None:
    data = settings(model=replace(TARGET, recipe="merging", fallback="strict", bind="10.0.0.5"))
    main, spare = made(data)
    assert (main.proxy_unit, spare.proxy_unit) == ("engine-key", "engine-fallback-roles")
    assert main.argv[3:7] == spare.argv[3:7] == ("--port", "9000", "--host", "127.0.0.1")
    assert main.url == spare.url == "http://10.0.0.5:8000"
    asks, both = (file.text for file in proxy_units(data, (main, spare), pins(data)))
    assert "--listen 10.0.0.5 --port 8000 --engine http://127.0.0.1:9000 --key\n" in asks
    assert "--engine http://127.0.0.1:9000 --merge --key\n" in both
    for text in (asks, both):
        assert "LoadCredential=api-key:/etc/lockstep/secrets/api-key\n" in text
    assert key_users(bound(data)) == ("engine-key.service", "engine-fallback-roles.service")
    found = json.loads(targets_file(data, (main, spare)).text)["targets"]
    assert {target["api_key_file"] for target in found.values()} == {
        "/etc/lockstep/secrets/api-key"
    }


@pytest.mark.parametrize("address", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_on_loopback_nobody_is_asked_for_a_key(address: str) -> None:
    data = settings(model=replace(TARGET, bind=address))
    file = only(data)
    assert "--key" not in file.text and "LoadCredential" not in file.text
    assert key_users(bound(data)) == ()
    assert (
        json.loads(targets_file(data, made(data)).text)["targets"]["model"]["api_key_file"] is None
    )


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.168.1.5", "spark-1.local", ""])
def test_any_other_address_counts_as_open(address: str) -> None:
    assert made(settings(model=replace(TARGET, bind=address)))[0].target.open


def test_open_webui_is_given_a_key_for_each_engine_that_asks() -> None:
    data = settings(
        model=replace(TARGET, bind="0.0.0.0"), other=TargetData("merging", "other", port=8100)
    )
    image = ImagePin("sha256:" + "1" * 64, "aarch64", 1)
    unit = webui_unit(data, made(data), Pins(images={data.webui.image: image})).text
    assert "OPENAI_API_BASE_URLS=http://127.0.0.1:8000/v1;http://127.0.0.1:8100/v1" in unit
    # What docker is given by name would win over a file.
    assert "OPENAI_API_KEYS" not in unit
    assert "--env-file /run/open-webui/keys.env" in unit
    assert (
        "ExecStartPre=/usr/bin/python3 /usr/local/lib/lockstep webui-keys "
        "/run/open-webui/keys.env /etc/lockstep/secrets/api-key key none\n"
    ) in unit
    closed = settings(model=TARGET)
    unit = webui_unit(closed, made(closed), Pins(images={data.webui.image: image})).text
    assert "OPENAI_API_KEYS=none" in unit and "keys.env" not in unit


def test_open_webui_is_not_told_of_a_model_that_gives_vectors() -> None:
    vectors = TargetData("vectors", "vectors", bind="0.0.0.0", port=8200)
    data = settings(model=TARGET, vectors=vectors)
    image = ImagePin("sha256:" + "1" * 64, "aarch64", 1)
    assert [variant.kind for variant in made(data)] == ["chat", "embedding"]
    unit = webui_unit(data, made(data), Pins(images={data.webui.image: image})).text
    assert "OPENAI_API_BASE_URLS=http://127.0.0.1:8000/v1 " in unit
    assert "OPENAI_API_KEYS=none" in unit and "keys.env" not in unit


def test_a_floor_in_tokens_is_refused_for_a_model_that_gives_vectors() -> None:
    vectors = TargetData("vectors", "vectors", port=8200, floor=Floor(not_below="90 %"))
    with pytest.raises(InventoryError, match=r"targets\.vectors\.floor is a speed") as fault:
        bound(settings(vectors=vectors))
    assert "of kind embedding" in str(fault.value)
    sense = replace(vectors, floor=Floor(sense=True))
    assert bound(settings(vectors=sense))[0].data.floor == Floor(sense=True)


def test_a_fallback_that_merges_by_itself_has_no_proxy() -> None:
    data = settings(model=replace(TARGET, fallback="merging"))
    main, spare = made(data)
    assert (main.proxy_unit, spare.proxy_unit) == ("engine-roles", None)
    assert main.url == spare.url == spare.engine_url
    assert unit_names(bound(data)) == (
        "engine.service",
        "engine-roles.service",
        "engine-fallback.service",
    )


def test_programs_and_open_webui_know_the_port_of_the_api() -> None:
    data = settings()
    found = made(data)
    target = json.loads(targets_file(data, found).text)["targets"]["model"]
    assert target["url"] == "http://127.0.0.1:8000"
    assert target["engine_url"] == "http://127.0.0.1:9000"
    assert target["proxy_unit"] == "engine-roles.service"
    image = ImagePin("sha256:" + "1" * 64, "aarch64", 1)
    argv = webui_command(data, found, Pins(images={data.webui.image: image}))
    assert "OPENAI_API_BASE_URLS=http://127.0.0.1:8000/v1" in argv


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (
            {"a": TARGET, "b": TargetData("merging", "other", port=9000)},
            "targets.b.port: port 9000 is used twice",
        ),
        (
            {"a": replace(TARGET, engine_port=8080)},
            "targets.a.engine_port: port 8080 is used twice",
        ),
        ({"a": replace(TARGET, engine_port=8000)}, "engine_port: port 8000 is used twice"),
        ({"a": replace(TARGET, port=65000)}, "targets.a.engine_port is not a port"),
    ],
)
def test_a_port_behind_the_proxy_that_cannot_be_is_refused(
    targets: dict[str, TargetData], message: str
) -> None:
    with pytest.raises(InventoryError) as error:
        bound(settings(**targets))
    assert message in str(error.value)
    assert "engine_port" in str(error.value) or "targets.b.port" in str(error.value)


def test_another_engine_port_may_be_named() -> None:
    (variant,) = made(settings(model=replace(TARGET, engine_port=7000)))
    assert variant.engine_url == "http://127.0.0.1:7000"


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (TARGET, "which refuses repeated roles"),
        (TargetData("merging", "engine", bind="0.0.0.0"), "which is open at '0.0.0.0'"),
        (TargetData("merging", "engine"), None),
    ],
)
def test_tools_without_what_the_proxy_imports_are_refused_with_the_inventory(
    target: TargetData, why: str | None
) -> None:
    data = settings(tools={"uvicorn": "uvicorn"}, model=target)
    if why is None:
        check_tools(data, bound(data), {})
        return
    with pytest.raises(InventoryError) as error:
        check_tools(data, bound(data), {"tools": "site.py"})
    assert why in str(error.value) and "tools without httpx2" in str(error.value)
    assert str(error.value).startswith("site.py: ")


def test_a_unit_that_the_proxy_needs_is_refused_where_it_is_taken() -> None:
    data = settings(a=TARGET, b=TargetData("merging", "engine-roles", port=8001))
    with pytest.raises(InventoryError, match="engine-roles"):
        made(data)


def test_what_changes_the_proxy_restarts_it_and_not_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = settings()
    now = generation(only(data))
    assert len(now) == 16
    assert generation(only(data)) == now
    assert generation(only(data, "1.1")) != now
    read = programs.package()
    path = "lockstep/onhost/gateway/wire/merge_roles.py"
    monkeypatch.setattr(programs, "package", lambda: {**read, path: "another"})
    assert generation(only(data)) != now
