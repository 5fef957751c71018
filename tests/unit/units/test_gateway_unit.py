"""Which targets have a door of the gateway, what it is told, and what makes it start anew."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from a_spark import environment

from lockstep.core.errors import InventoryError
from lockstep.files import programs
from lockstep.inventory.bound_targets import GATEWAY_TOOLS, BoundTarget, bind, check_tools
from lockstep.inventory.settings import Floor, Gateway, Settings, TargetData
from lockstep.lock.packages import tool_sets
from lockstep.lock.pins import ImagePin, ModelPin, Pins
from lockstep.onhost.gateway import configuration
from lockstep.onhost.gateway.configuration import Door, Peer
from lockstep.recipes.recipe_file import parse
from lockstep.units.gateway_unit import configured, gateway_files, open_url
from lockstep.units.model_units import webui_command, webui_unit
from lockstep.units.targets_json import targets_file
from lockstep.units.variants import Variant, unit_names, variants

RECIPE = """
recipe_version: "2"
model: org/model
runtime: {engine}
defaults: {{port: 8000, host: 127.0.0.1}}
command: {command} {{model}} --port {{port}} --host {{host}}
lockstep:
  moe: true
  refused_shapes: {shapes}
  memory: {{value: 40, source: here, date: 2026-11-21, kind: computed}}
"""
VLLM = {"engine": "vllm", "command": "vllm serve"}
TOOLS = {name: name for name in GATEWAY_TOOLS}
TARGET = TargetData(recipe="strict", unit="engine")
LOCAL = Door("local", "127.0.0.1", 8090)


def settings(gateway: Gateway | None = None, **targets: TargetData) -> Settings:
    return Settings(
        name="spark",
        targets=targets or {"model": TARGET},
        tools=TOOLS,
        gateway=gateway or Gateway(),
    )


def bound(data: Settings) -> tuple[BoundTarget, ...]:
    texts = {
        "strict": RECIPE.format(shapes="[same_role, developer]", **VLLM),
        "merging": RECIPE.format(shapes="[]", **VLLM),
        "vectors": RECIPE.format(shapes="[]", engine="vllm", command="vllm serve --runner pooling"),
        "unknown": RECIPE.format(shapes="null", **VLLM),
    }
    catalogue = {name: parse(text, Path(f"{name}.yaml")) for name, text in texts.items()}
    return bind(data, catalogue, {})


def pins(data: Settings, version: str = "1.0") -> Pins:
    return Pins(
        python={item.key: environment(item, version) for item in tool_sets(data)},
        models={
            "org/model": ModelPin("main", "a" * 40, (), refused_shapes=("same_role", "late_system"))
        },
        images={data.webui.image: ImagePin("sha256:" + "1" * 64, "aarch64", 1)},
    )


def made(data: Settings) -> tuple[Variant, ...]:
    return variants(data, bound(data), pins(data), engine_id="0" * 12)


def doors(data: Settings) -> list[Door]:
    """All doors but the local one, which comes first."""
    first, *rest = configured(data, made(data)).doors
    assert first == replace(LOCAL, port=data.gateway.port)
    return rest


def unit(data: Settings, version: str = "1.0") -> str:
    files = {file.path: file.text for file in gateway_files(data, made(data), pins(data, version))}
    return files["/etc/systemd/system/lockstep-gateway.service"]


def generation(text: str) -> str:
    return text.partition("LOCKSTEP_GENERATION=")[2].partition("\n")[0]


def told(data: Settings) -> dict[str, Any]:
    """Targets as the host's programs know them."""
    found: dict[str, Any] = json.loads(targets_file(data, made(data)).text)["targets"]
    return found


@pytest.mark.parametrize("recipe", ["merging", "unknown"])
def test_an_engine_that_is_not_known_to_refuse_has_the_port_itself(recipe: str) -> None:
    data = settings(model=replace(TARGET, recipe=recipe))
    (variant,) = made(data)
    assert (variant.target.port, variant.target.engine_port) == (8000, None)
    assert variant.engine_url == variant.url == "http://127.0.0.1:8000"
    assert variant.argv[3:7] == ("--port", "8000", "--host", "127.0.0.1")
    assert doors(data) == []
    # What the lock found counts where the recipe does not say; it moves no port.
    found = ("same_role", "late_system") if recipe == "unknown" else ()
    assert configured(data, made(data)).model("model").evens == (*found, "empty_tools")


def test_an_engine_that_refuses_moves_behind_a_door_that_merges() -> None:
    data = settings(model=TARGET)
    (variant,) = made(data)
    assert variant.argv[3:7] == ("--port", "9000", "--host", "127.0.0.1")
    assert (variant.url, variant.engine_url) == ("http://127.0.0.1:8000", "http://127.0.0.1:9000")
    assert doors(data) == [Door("target", "127.0.0.1", 8000, ("model",))]
    shapes = ("same_role", "developer", "empty_tools")
    assert configured(data, made(data)).model("model").evens == shapes
    assert unit_names(bound(data)) == ("engine.service",)
    target = told(data)["model"]
    assert (target["url"], target["engine_url"]) == (variant.url, variant.engine_url)
    (named,) = made(settings(model=replace(TARGET, engine_port=7000)))
    assert named.engine_url == "http://127.0.0.1:7000"


def test_a_target_open_to_others_moves_behind_a_door_that_asks_for_the_key() -> None:
    data = settings(model=replace(TARGET, recipe="merging", bind="10.0.0.5"))
    (variant,) = made(data)
    # Whoever the API is open to, the engine itself is not.
    assert variant.argv[3:7] == ("--port", "9000", "--host", "127.0.0.1")
    assert variant.url == "http://10.0.0.5:8000"
    assert doors(data) == [Door("target", "10.0.0.5", 8000, ("model",))]
    assert "LoadCredential=api-key:/etc/lockstep/secrets/api-key\n" in unit(data)
    assert "IPAddressDeny" not in unit(data)
    assert told(data)["model"]["api_key_file"] == "/etc/lockstep/secrets/api-key"


@pytest.mark.parametrize("address", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_on_loopback_nobody_is_asked_for_a_key(address: str) -> None:
    data = settings(model=replace(TARGET, bind=address))
    assert not made(data)[0].target.open
    assert "LoadCredential" not in unit(data)
    assert "IPAddressDeny=any\nIPAddressAllow=localhost\n" in unit(data)
    assert told(data)["model"]["api_key_file"] is None
    [door] = doors(data)
    assert door.address == ("127.0.0.1" if address == "localhost" else address)


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.168.1.5", "spark-1.local", ""])
def test_any_other_address_counts_as_open(address: str) -> None:
    assert made(settings(model=replace(TARGET, bind=address)))[0].target.open


@pytest.mark.parametrize(("main", "spare"), [("strict", "merging"), ("merging", "strict")])
def test_a_target_and_its_fallback_are_behind_one_door(main: str, spare: str) -> None:
    data = settings(model=replace(TARGET, recipe=main, fallback=spare))
    found = made(data)
    assert {variant.argv[3:7] for variant in found} == {("--port", "9000", "--host", "127.0.0.1")}
    assert doors(data) == [Door("target", "127.0.0.1", 8000, ("model", "model-fallback"))]
    joined = {n: "same_role" in m.evens for n, m in configured(data, found).models.items()}
    assert joined == {"model": main == "strict", "model-fallback": spare == "strict"}


def test_what_the_gateway_is_told_is_what_it_reads(tmp_path: Path) -> None:
    gateway = Gateway(
        bind="10.0.0.5", tls="own", peers=("other",), ttl_s=600, swap_on_request=True, queue=4
    )
    data = replace(
        settings(gateway, model=replace(TARGET, aliases=("gpt-4o",), fallback="merging")),
        fabric_address="10.77.0.11",
    )
    peer = Peer("other", "10.77.0.12", 8090)
    files = {file.path: file for file in gateway_files(data, made(data), pins(data), (peer,))}
    path = tmp_path / "gateway.json"
    path.write_text(files["/etc/lockstep/gateway.json"].text)
    found = configuration.load(path)
    assert found.doors == (
        LOCAL,
        Door("tls", "/run/lockstep-gateway/tls.sock"),
        Door("peers", "10.77.0.11", 8090),
        Door("target", "127.0.0.1", 8000, ("model", "model-fallback")),
    )
    assert found.peers == (peer,)
    assert set(found.names) == {"spark", "10.77.0.11", "10.0.0.5"}
    # The fallback answers to the names of its target.
    assert found.model("model").aliases == ("gpt-4o",)
    assert found.model("model-fallback").aliases == ()
    assert (found.ttl_s, found.swap_on_request, found.queue) == (600, True, 4)
    assert asdict(found.limits) == asdict(gateway.limits)


@pytest.mark.parametrize(
    ("gateway", "door", "url"),
    [
        (Gateway(), None, None),
        (Gateway(bind="0.0.0.0", plain=True), Door("open", "0.0.0.0", 8090), "http://spark1:8090"),
        (
            Gateway(bind="fd00::5", plain=True),
            Door("open", "fd00::5", 8090),
            "http://[fd00::5]:8090",
        ),
        (
            Gateway(bind="fd00::5", tls="tailscale", tls_port=443 + 8000),
            Door("tls", configuration.TLS_SOCKET),
            "https://spark1:8443",
        ),
    ],
)
def test_other_machines_have_a_door_where_the_inventory_opens_one(
    gateway: Gateway, door: Door | None, url: str | None
) -> None:
    data = settings(gateway, model=replace(TARGET, recipe="merging"))
    assert doors(data) == ([door] if door else [])
    assert open_url(data, "spark1") == url


def test_open_webui_has_one_connection() -> None:
    data = settings(
        model=replace(TARGET, bind="0.0.0.0"), other=TargetData("merging", "other", port=8100)
    )
    argv = webui_command(data, made(data), pins(data))
    assert "OPENAI_API_BASE_URLS=http://127.0.0.1:8090/v1" in argv
    # Not the key of this host: on loopback nobody is asked.
    assert "OPENAI_API_KEYS=none" in argv
    text = webui_unit(data, made(data), pins(data)).text
    assert "api-key" not in text and "After=network-online.target docker.service lockstep-" in text


def test_a_floor_in_tokens_is_refused_for_a_model_that_gives_vectors() -> None:
    vectors = TargetData("vectors", "vectors", port=8200, floor=Floor(not_below="90 %"))
    with pytest.raises(InventoryError, match=r"targets\.vectors\.floor is a speed") as fault:
        bound(settings(vectors=vectors))
    assert "of kind embedding" in str(fault.value)
    sense = replace(vectors, floor=Floor(sense=True))
    assert bound(settings(vectors=sense))[0].data.floor == Floor(sense=True)


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
        ({"a": replace(TARGET, port=8090)}, "gateway.port: port 8090 is used twice"),
    ],
)
def test_a_port_that_cannot_be_is_refused(targets: dict[str, TargetData], message: str) -> None:
    with pytest.raises(InventoryError) as error:
        bound(settings(None, **targets))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("aliases", "other"),
    [
        (("auto",), "whatever is hot"),
        (("b",), "targets.b"),
        (("a-fallback",), "targets.a"),
        (("gpt", "gpt"), "targets.a.aliases[0]"),
        (("org/other",), "the served name of b"),
        (("org/model", "gpt"), None),
    ],
)
def test_an_alias_means_one_thing(aliases: tuple[str, ...], other: str | None) -> None:
    b = TargetData("merging", "b", port=8100, overrides={"served_model_name": "org/other"})
    a = replace(TARGET, aliases=aliases, fallback="merging")
    if other is None:
        assert bound(settings(a=a, b=b))[0].data.aliases == aliases
        return
    with pytest.raises(InventoryError) as error:
        bound(settings(a=a, b=b))
    assert f"found {aliases[-1]!r}: {other}" in str(error.value)


def test_a_target_is_not_called_auto() -> None:
    with pytest.raises(InventoryError, match="means whatever is hot"):
        bound(settings(auto=TARGET))


def test_tools_without_what_the_gateway_imports_are_refused_with_the_inventory() -> None:
    check_tools(settings(), {})
    tools = {name: text for name, text in TOOLS.items() if name != "httpx2"}
    with pytest.raises(InventoryError) as error:
        check_tools(replace(settings(), tools=tools), {"tools": "site.py"})
    assert "tools without httpx2" in str(error.value)
    assert str(error.value).startswith("site.py: ")


def test_what_changes_the_gateway_restarts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    data = settings()
    now = generation(unit(data))
    assert len(now) == 16
    assert generation(unit(data)) == now
    assert generation(unit(data, "1.1")) != now
    assert generation(unit(settings(Gateway(ttl_s=60)))) != now
    # Targets are known to it from its start.
    assert generation(unit(settings(model=replace(TARGET, start_timeout_s=60)))) != now
    read = programs.package()
    path = "lockstep/onhost/gateway/wire/even_out.py"
    monkeypatch.setattr(programs, "package", lambda: {**read, path: "another"})
    assert generation(unit(data)) != now


def ports(gateway: Gateway, **targets: TargetData) -> list[str]:
    data = replace(settings(gateway, **targets), fabric_address="10.77.0.11")
    peers = (Peer("other", "10.77.0.12", 8090),) if gateway.peers else ()
    files = {file.path: file for file in gateway_files(data, made(data), pins(data), peers)}
    return files["/etc/systemd/system/lockstep-gateway.socket"].text.splitlines()


@pytest.mark.parametrize(
    ("gateway", "streams"),
    [
        (Gateway(), ["127.0.0.1:8090"]),
        (Gateway(bind="0.0.0.0", plain=True), ["0.0.0.0:8090"]),
        (Gateway(bind="fd00::5", plain=True), ["127.0.0.1:8090", "[fd00::5]:8090"]),
        (
            Gateway(bind="10.0.0.5", tls="own", peers=("other",)),
            ["127.0.0.1:8090", "/run/lockstep-gateway/tls.sock", "10.77.0.11:8090"],
        ),
    ],
)
def test_systemd_opens_each_door_that_has_a_port(gateway: Gateway, streams: list[str]) -> None:
    said = ports(gateway, model=replace(TARGET, recipe="merging"))
    assert [line[13:] for line in said if line.startswith("ListenStream=")] == streams
    closed = "IPAddressDeny=any" in said
    assert closed == all(line.startswith(("127.", "/")) for line in streams)


def test_its_memory_is_bounded_by_what_bodies_may_take() -> None:
    assert "MemoryMax=2560M\n" in unit(settings())
    small = Gateway(limits=replace(Gateway().limits, body_mib=16))
    assert "MemoryMax=1024M\n" in unit(settings(small))


def test_another_door_opens_the_ports_anew_and_another_target_does_not() -> None:
    data = replace(TARGET, recipe="merging")
    before = ports(Gateway(), model=data)
    assert before == ports(Gateway(ttl_s=600), model=replace(data, start_timeout_s=60))
    assert before != ports(Gateway(), model=TARGET)
