"""Models with a gateway listener, the gateway's configuration, and the causes of its restart."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from a_spark import environment

from lockstep.core.errors import InventoryError
from lockstep.files import programs
from lockstep.inventory.bound_models import GATEWAY_TOOLS, BoundModel, bind, check_tools
from lockstep.inventory.settings import Gateway, ModelData, Settings
from lockstep.lock.packages import tool_sets
from lockstep.lock.pins import CheckpointPin, ImagePin, Pins
from lockstep.onhost.core.config import Minimum
from lockstep.onhost.gateway import configuration
from lockstep.onhost.gateway.configuration import ListenAddress, PeerGateway
from lockstep.recipes.recipe_file import parse
from lockstep.units.gateway_unit import gateway_configuration, gateway_files, open_url
from lockstep.units.model_variants import Variant, unit_names, variants
from lockstep.units.models_json import models_file

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
MODEL = ModelData(recipe="strict", unit="engine")
LOCAL = ListenAddress("local", "127.0.0.1", 8090)


def settings(gateway: Gateway | None = None, **models: ModelData) -> Settings:
    some = models or {"model": MODEL}
    return Settings("spark", some, tools=TOOLS, gateway=gateway or Gateway())


def bound_models(data: Settings) -> tuple[BoundModel, ...]:
    texts = {
        "strict": RECIPE.format(shapes="[same_role, developer]", **VLLM),
        "merging": RECIPE.format(shapes="[]", **VLLM),
        "vectors": RECIPE.format(shapes="[]", engine="vllm", command="vllm serve --runner pooling"),
        "unknown": RECIPE.format(shapes="null", **VLLM),
    }
    catalogue = {name: parse(text, Path(f"{name}.yaml")) for name, text in texts.items()}
    return bind(data, catalogue, {})


def pins(data: Settings, version: str = "1.0") -> Pins:
    model = CheckpointPin("main", "a" * 40, (), refused_shapes=("same_role", "late_system"))
    return Pins(
        python={item.key: environment(item, version) for item in tool_sets(data)},
        checkpoints={"org/model": model},
        images={data.webui.image: ImagePin("sha256:" + "1" * 64, "aarch64", 1)},
    )


def host_variants(data: Settings) -> tuple[Variant, ...]:
    return variants(data, bound_models(data), pins(data), engine_id="0" * 12)


def listeners(data: Settings) -> list[ListenAddress]:
    """All listeners but the local one, which comes first."""
    first, *other_listeners = gateway_configuration(data, host_variants(data)).listeners
    assert first == replace(LOCAL, port=data.gateway.port)
    return other_listeners


def files(data: Settings, version: str = "1.0", *peers: PeerGateway) -> dict[str, str]:
    """Name → text of the gateway's files."""
    every = gateway_files(data, host_variants(data), pins(data, version), peers)
    return {file.path.rpartition("/")[2]: file.text for file in every}


def unit(data: Settings, version: str = "1.0") -> str:
    return files(data, version)["lockstep-gateway.service"]


def models_data(data: Settings) -> dict[str, Any]:
    """Models as the host's programs know them."""
    return json.loads(models_file(data, host_variants(data)).text)["models"]


@pytest.mark.parametrize("recipe", ["merging", "unknown"])
def test_an_engine_that_is_not_known_to_refuse_has_the_port_itself(recipe: str) -> None:
    data = settings(model=replace(MODEL, recipe=recipe))
    (variant,) = host_variants(data)
    assert (variant.model.port, variant.model.engine_port) == (8000, None)
    assert variant.served_model.engine_url == variant.served_model.url == "http://127.0.0.1:8000"
    assert variant.argv[3:7] == ("--port", "8000", "--host", "127.0.0.1")
    assert listeners(data) == []
    # What the lock found counts where the recipe does not say; it moves no port.
    found_shapes = ("same_role", "late_system") if recipe == "unknown" else ()
    assert variant.served_model.evens == (*found_shapes, "empty_tools")


def test_an_engine_that_refuses_moves_behind_a_listener_that_merges() -> None:
    data = settings(model=MODEL)
    (variant,) = host_variants(data)
    assert variant.argv[3:7] == ("--port", "9000", "--host", "127.0.0.1")
    assert variant.served_model.url == "http://127.0.0.1:8000"
    assert variant.served_model.engine_url == "http://127.0.0.1:9000"
    assert listeners(data) == [ListenAddress("model", "127.0.0.1", 8000, ("model",))]
    assert variant.served_model.evens == ("same_role", "developer", "empty_tools")
    assert unit_names(bound_models(data)) == ("engine.service",)
    (named_variant,) = host_variants(settings(model=replace(MODEL, engine_port=7000)))
    assert named_variant.served_model.engine_url == "http://127.0.0.1:7000"


def test_a_model_open_to_others_moves_behind_a_listener_that_asks_for_the_key() -> None:
    data = settings(model=replace(MODEL, recipe="merging", bind="10.0.0.5"))
    (variant,) = host_variants(data)
    # Whoever the API is open to, the engine itself is not.
    assert variant.argv[3:7] == ("--port", "9000", "--host", "127.0.0.1")
    assert variant.served_model.url == "http://10.0.0.5:8000"
    assert listeners(data) == [ListenAddress("model", "10.0.0.5", 8000, ("model",))]
    assert "LoadCredential=api-key:/etc/lockstep/secrets/api-key\n" in unit(data)
    assert "IPAddressDeny" not in unit(data)
    assert models_data(data)["model"]["api_key_file"] == "/etc/lockstep/secrets/api-key"


@pytest.mark.parametrize("address", ["127.1.2.3", "::1", "localhost"])
def test_on_loopback_nobody_is_asked_for_a_key(address: str) -> None:
    data = settings(model=replace(MODEL, bind=address))
    assert not host_variants(data)[0].model.open
    assert "LoadCredential" not in unit(data)
    assert "IPAddressDeny=any\nIPAddressAllow=localhost\n" in unit(data)
    assert "api_key_file" not in models_data(data)["model"]
    [listener] = listeners(data)
    assert listener.address == ("127.0.0.1" if address == "localhost" else address)


@pytest.mark.parametrize("address", ["0.0.0.0", "192.168.1.5", "spark-1.local", ""])
def test_any_other_address_counts_as_open(address: str) -> None:
    assert host_variants(settings(model=replace(MODEL, bind=address)))[0].model.open


@pytest.mark.parametrize(("main", "spare"), [("strict", "merging"), ("merging", "strict")])
def test_a_model_and_its_fallback_are_behind_one_listener(main: str, spare: str) -> None:
    data = settings(model=replace(MODEL, recipe=main, fallback=spare))
    first, second = host_variants(data)
    port = ("--port", "9000", "--host", "127.0.0.1")
    assert first.argv[3:7] == second.argv[3:7] == port
    listener = ListenAddress("model", "127.0.0.1", 8000, ("model", "model-fallback"))
    assert listeners(data) == [listener]
    assert ("same_role" in first.served_model.evens) == (main == "strict")
    assert ("same_role" in second.served_model.evens) == (spare == "strict")


def test_what_the_gateway_is_told_is_what_it_reads(tmp_path: Path) -> None:
    gateway = Gateway(bind="10.0.0.5", tls="own", peers=("other",), ttl_s=600, queue=4)
    model = replace(MODEL, aliases=("gpt-4o",), fallback="merging")
    data = replace(settings(gateway, model=model), fabric_address="10.77.0.11")
    peer = PeerGateway("other", "10.77.0.12", 8090)
    path = tmp_path / "gateway.json"
    path.write_text(files(data, "1.0", peer)[path.name])
    gateway_read = configuration.load(path)
    assert gateway_read.listeners == (
        LOCAL,
        ListenAddress("tls", "/run/lockstep-gateway/tls.sock"),
        ListenAddress("peers", "10.77.0.11", 8090),
        ListenAddress("model", "127.0.0.1", 8000, ("model", "model-fallback")),
    )
    assert gateway_read.peers == (peer,)
    assert set(gateway_read.names) == {"spark", "10.77.0.11", "10.0.0.5"}
    # The fallback answers to the names of its model.
    aliases = {variant.name: variant.served_model.aliases for variant in host_variants(data)}
    assert aliases == {"model": ("gpt-4o",), "model-fallback": ()}
    assert (gateway_read.ttl_s, gateway_read.queue) == (600, 4)
    assert asdict(gateway_read.limits) == asdict(gateway.limits)


def test_other_machines_have_a_listener_where_the_inventory_opens_one() -> None:
    for gateway, url in (
        (Gateway(), None),
        (Gateway(bind="fd00::5", plain=True), "http://[fd00::5]:8090"),
        (Gateway(bind="fd00::5", tls="tailscale"), "https://spark1:8443"),
    ):
        assert open_url(settings(gateway), "spark1") == url
    data = settings(Gateway(bind="fd00::5", plain=True), model=replace(MODEL, recipe="merging"))
    assert listeners(data) == [ListenAddress("open", "fd00::5", 8090)]


def test_a_minimum_in_tokens_is_refused_for_a_model_that_gives_vectors() -> None:
    vectors = ModelData("vectors", "vectors", port=8200, minimum=Minimum(not_below="90 %"))
    with pytest.raises(InventoryError, match=r"models\.vectors\.minimum is a speed") as fault:
        bound_models(settings(vectors=vectors))
    assert "of kind embedding" in str(fault.value)
    sense = replace(vectors, minimum=Minimum(sense=True))
    assert bound_models(settings(vectors=sense))[0].data.minimum == Minimum(sense=True)


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ({"a": MODEL, "b": ModelData("merging", "b", port=9000)}, "b.port: port 9000 is used"),
        ({"a": replace(MODEL, engine_port=8000)}, "a.engine_port: port 8000 is used twice"),
        ({"a": replace(MODEL, port=65000)}, "models.a.engine_port is not a port"),
        ({"a": replace(MODEL, port=8090)}, "gateway.port: port 8090 is used twice"),
    ],
)
def test_a_port_that_cannot_be_is_refused(models: dict[str, ModelData], message: str) -> None:
    with pytest.raises(InventoryError, match=message):
        bound_models(settings(None, **models))


def test_an_alias_means_one_thing() -> None:
    b = ModelData("merging", "b", port=8100, overrides={"served_model_name": "org/other"})
    for aliases, other_owner in (
        (("auto",), "whatever is hot"),
        (("b",), "models.b"),
        (("a-fallback",), "models.a"),
        (("gpt", "gpt"), r"models.a.aliases\[0\]"),
        (("org/other",), "the served name of b"),
    ):
        a = replace(MODEL, aliases=aliases, fallback="merging")
        with pytest.raises(InventoryError, match=f"found {aliases[-1]!r}: {other_owner}"):
            bound_models(settings(a=a, b=b))
    assert bound_models(settings(a=replace(MODEL, aliases=("org/model", "gpt")), b=b))
    with pytest.raises(InventoryError, match="means whatever is hot"):
        bound_models(settings(auto=MODEL))


def test_tools_without_what_the_gateway_imports_are_refused_with_the_inventory() -> None:
    check_tools(settings(), {})
    tools = {name: text for name, text in TOOLS.items() if name != "httpx2"}
    with pytest.raises(InventoryError, match=r"^site\.py: .*tools without httpx2"):
        check_tools(replace(settings(), tools=tools), {"tools": "site.py"})


def test_what_changes_the_gateway_restarts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def restart_key(data: Settings, version: str = "1.0") -> str:
        return unit(data, version).partition("LOCKSTEP_RESTART_KEY=")[2].partition("\n")[0]

    data = settings()
    now = restart_key(data)
    assert len(now) == 16 and restart_key(data) == now
    assert restart_key(data, "1.1") != now
    assert restart_key(settings(Gateway(ttl_s=60))) != now
    # Models are known to it from its start.
    assert restart_key(settings(model=replace(MODEL, start_timeout_s=60))) != now
    read = programs.package_texts()
    path = "lockstep/onhost/gateway/wire/refused_shape_repair.py"
    monkeypatch.setattr(programs, "package_texts", lambda: {**read, path: "another"})
    assert restart_key(data) != now


def ports(gateway: Gateway, **models: ModelData) -> list[str]:
    data = replace(settings(gateway, **models), fabric_address="10.77.0.11")
    peers = (PeerGateway("other", "10.77.0.12", 8090),) if gateway.peers else ()
    return files(data, "1.0", *peers)["lockstep-gateway.socket"].splitlines()


def test_systemd_opens_each_listener_that_has_a_port() -> None:
    for gateway, streams, is_closed in (
        (Gateway(), [], True),
        (Gateway(bind="fd00::5", plain=True), ["[fd00::5]:8090"], False),
        (
            Gateway(bind="10.0.0.5", tls="own", peers=("other",)),
            *(["/run/lockstep-gateway/tls.sock", "10.77.0.11:8090"], False),
        ),
    ):
        lines = ports(gateway, model=replace(MODEL, recipe="merging"))
        listened_streams = [line[13:] for line in lines if line.startswith("ListenStream=")]
        assert listened_streams == ["127.0.0.1:8090", *streams]
        assert ("IPAddressDeny=any" in lines) == is_closed


def test_its_memory_is_bounded_by_what_bodies_may_take() -> None:
    small = Gateway(limits=replace(Gateway().limits, body_mib=16))
    assert "MemoryMax=1024M\n" in unit(settings(small))


def test_another_listener_opens_the_ports_anew_and_another_model_does_not() -> None:
    data = replace(MODEL, recipe="merging")
    earlier_lines = ports(Gateway(), model=data)
    assert earlier_lines == ports(Gateway(ttl_s=600), model=replace(data, start_timeout_s=60))
    assert earlier_lines != ports(Gateway(), model=MODEL)
