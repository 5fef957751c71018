"""Configurations of client programs: they parse, and say what the gateway offers."""

import json
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import yaml
from an_inventory import ANNA, write_inventory

from group_data.all import models
from lockstep.clients.offer import GatewayOffer, OfferedModel, of_host
from lockstep.clients.programs import PROGRAMS
from lockstep.fleet.hosts import choose

OFFER = GatewayOffer(
    "spark-1",
    "https://spark-1:8443",
    (
        OfferedModel("auto", "auto", context=32768),
        OfferedModel("qwen", "qwen", context=262144, images=True),
        OfferedModel("coder", "qwen", context=262144, images=True),
        OfferedModel("odd", "odd"),
        OfferedModel("vectors", "vectors", kind="embedding", context=8192),
        OfferedModel("order", "order", kind="rerank"),
    ),
    wait_s=3600,
    has_key=True,
)
KEY = Path("/home/anna/a key")
CHAT = ["auto", "qwen", "coder", "odd"]


def parsed_file(program: str, key: Path | None = KEY, offer: GatewayOffer = OFFER) -> Any:
    """The first file of a program, parsed by its name's end."""
    part = PROGRAMS[program].parts(offer, key)[0]
    readers = {".json": json.loads, ".toml": tomllib.loads}
    return readers.get(Path(part.path).suffix, yaml.safe_load)(part.text)


def test_opencode() -> None:
    config = parsed_file("opencode")
    assert (config["model"], config["small_model"]) == ("lockstep/auto", "lockstep/auto")
    provider = config["provider"]["lockstep"]
    assert provider["npm"] == "@ai-sdk/openai-compatible"
    assert provider["options"] == {
        "baseURL": "https://spark-1:8443/v1",
        "apiKey": "{file:/home/anna/a key}",
        "headerTimeout": 3600000,
        "chunkTimeout": 3600000,
    }
    assert list(provider["models"]) == CHAT
    assert provider["models"]["coder"] == {
        "name": "coder (qwen)",
        "attachment": True,
        "modalities": {"input": ["text", "image"], "output": ["text"]},
        "limit": {"context": 262144, "output": 32768},
    }
    assert provider["models"]["odd"] == {"name": "odd"}
    without = parsed_file("opencode", None)["provider"]["lockstep"]["options"]
    assert without["apiKey"] == "{env:LOCKSTEP_KEY}"


def test_claude(tmp_path: Path) -> None:
    key = tmp_path / "anna's key"
    key.write_text("lk-secret\n")
    config = parsed_file("claude", key, OFFER.preferring("qwen"))
    variables = config["env"]
    assert {variables[name] for name in variables if name.endswith("_MODEL")} == {"qwen"}
    expected_variables = {
        # It adds /v1 itself.
        "ANTHROPIC_BASE_URL": "https://spark-1:8443",
        "API_TIMEOUT_MS": "3600000",
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": "262144",
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
    }
    assert expected_variables.items() <= variables.items()
    assert all(isinstance(value, str) for value in variables.values())
    assert shell_output(config["apiKeyHelper"]) == "lk-secret"
    without = parsed_file("claude", None, OFFER.preferring("odd"))
    assert "CLAUDE_CODE_MAX_CONTEXT_TOKENS" not in without["env"]
    assert shell_output(without["apiKeyHelper"]) == "none"
    assert shell_output(without["apiKeyHelper"], LOCKSTEP_KEY="lk-mine") == "lk-mine"


def shell_output(command: str, **variables: str) -> str:
    """The output of a command in a shell."""
    environment = {"PATH": "/usr/bin:/bin", **variables}
    return subprocess.check_output(["sh", "-c", command], text=True, env=environment).strip()


def test_codex() -> None:
    config = parsed_file("codex")
    assert (config["model"], config["model_context_window"]) == ("auto", 32768)
    assert config["model_providers"][config["model_provider"]] == {
        "name": "Lockstep on spark-1",
        "base_url": "https://spark-1:8443/v1",
        "wire_api": "responses",
        "env_key": "LOCKSTEP_KEY",
        "stream_idle_timeout_ms": 3600000,
    }


def test_continue() -> None:
    models = {model["model"]: model for model in parsed_file("continue")["models"]}
    assert list(models) == [*CHAT, "vectors"]
    coder = {
        "apiBase": "https://spark-1:8443/v1",
        "apiKey": "${{ secrets.LOCKSTEP_KEY }}",
        "requestOptions": {"timeout": 3600},
        "capabilities": ["tool_use", "image_input"],
        "defaultCompletionOptions": {"contextLength": 262144, "maxTokens": 32768},
    }
    assert coder.items() <= models["coder"].items()
    assert "defaultCompletionOptions" not in models["odd"]
    assert models["vectors"]["roles"] == ["embed"]


def test_aider() -> None:
    options, metadata = PROGRAMS["aider"].parts(OFFER, KEY)
    config = yaml.safe_load(options.text)
    assert (config["model"], config["timeout"]) == ("openai/auto", 3600)
    assert config["openai-api-base"] == "https://spark-1:8443/v1"
    models = json.loads(metadata.text)
    assert list(models) == ["openai/auto", "openai/qwen", "openai/coder"]
    limits = {"max_input_tokens": 262144, "max_tokens": 32768}
    assert limits.items() <= models["openai/qwen"].items()


def test_openai(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("lk-secret\n")
    echo_command = "; echo $OPENAI_BASE_URL $OPENAI_API_KEY"
    [part] = PROGRAMS["openai"].parts(OFFER, key)
    assert shell_output(part.text.rstrip() + echo_command) == "https://spark-1:8443/v1 lk-secret"
    assert "timeout=3600" in part.text and "vectors, order" in part.text
    [part] = PROGRAMS["openai"].parts(OFFER, None)
    assert shell_output(part.text.rstrip() + echo_command) == "https://spark-1:8443/v1 none"


def host_offer(folder, host="spark-1", *, more=None, two=None, model=None) -> GatewayOffer:
    """The offer of a host, with more data of spark-1, of spark-2, or of spark-2's only model."""
    login_data = {"ssh_user": "anna", **ANNA}
    big = {"models": {"big": {**models["qwen"], **(model or {})}}}
    hosts = {
        "spark-1": {**login_data, "fabric_address": "10.0.0.1", **(more or {})},
        "spark-2": {**login_data, "fabric_address": "10.0.0.2", **big, **(two or {})},
    }
    every, [chosen_host] = choose(write_inventory(folder, hosts), [host])
    return of_host(chosen_host, every)


def test_where_it_is_open_that_is_its_address(tmp_path: Path) -> None:
    for gateway, url in (
        ({"bind": "0.0.0.0", "plain": True}, "http://spark-1:8090"),
        ({"bind": "10.0.0.1", "plain": True, "port": 8009}, "http://10.0.0.1:8009"),
        ({"bind": "::", "plain": True}, "http://spark-1:8090"),
        ({"bind": "fd00::1", "plain": True}, "http://[fd00::1]:8090"),
        ({"bind": "0.0.0.0", "tls": "own"}, "https://spark-1:8443"),
        ({"bind": "10.0.0.1", "tls": "own", "tls_port": 9443}, "https://spark-1:9443"),
    ):
        offer = host_offer(tmp_path, more={"gateway": gateway})
        assert (offer.url, offer.has_key, offer.tunnel) == (url, True, "")
        assert offer.authority is ("tls" in gateway)


def test_a_tunnel_is_by_the_port_of_ssh_and_loopback_may_ask_for_keys(tmp_path: Path) -> None:
    offer = host_offer(tmp_path, more={"ssh_port": 2222})
    assert offer.tunnel == "ssh -p 2222 anna@spark-1 -N -L 8090:127.0.0.1:8090"
    more = {"gateway": {"local_keys": True}, "webui": {"enabled": False}}
    assert host_offer(tmp_path, more=more).has_key


def test_context_is_the_least_of_recipe_and_fallback_and_a_wait_the_longest(tmp_path: Path) -> None:
    offer = host_offer(tmp_path)
    offered_models = {model.name: model for model in offer.models}
    assert list(offered_models) == ["auto", "qwen", "mistral", "mistral-vllm"]
    assert (offered_models["qwen"].context, offered_models["qwen"].output) == (262144, 32768)
    assert (offered_models["mistral"].context, offered_models["mistral"].output) == (32768, 8192)
    # A fallback that does not see is the exception.
    assert offered_models["qwen"].images and offered_models["auto"].images
    # Another model may come first.
    names = [model.name for model in offer.preferring("mistral").chat]
    assert names == ["mistral", "auto", "qwen", "mistral-vllm"]
    assert host_offer(tmp_path).wait_s == 1800 + 1800
    slow = host_offer(tmp_path, "spark-2", model={"start_timeout_s": 7200})
    assert slow.wait_s == 7200 + 1800


def test_auto_has_the_least_context_that_an_agent_can_use(tmp_path: Path) -> None:
    """`mistral` has 32768, and is no model for an agent."""
    for big, least in ((None, 262144), (131072, 131072), (65536, 262144), (16384, 262144)):
        model_data = {"overrides": {"max_model_len": big}, "fallback": None} if big else {}
        more = {"gateway": {"peers": ("spark-2",)}}
        two = {"gateway": {"peers": ("spark-1",)}}
        offer = host_offer(tmp_path, more=more, two=two, model=model_data)
        assert offer.models[0].context == least
        # Models of peers are offered, too.
        assert offer.models[-1].name == "big"


def test_aliases_and_overrides_count(tmp_path: Path) -> None:
    model = {"fallback": None, "aliases": ("gpt-x",), "overrides": {"max_model_len": 65536}}
    offer = host_offer(tmp_path, "spark-2", model=model)
    rows = [(model.name, model.model_name, model.context) for model in offer.models]
    # Without a model for agents `auto` has the least of all.
    assert rows == [("auto", "auto", 65536), ("big", "big", 65536), ("gpt-x", "big", 65536)]


def test_a_model_of_several_hosts_has_their_smallest_context(tmp_path):
    smaller = {**models["qwen"], "fallback": None, "overrides": {"max_model_len": 65536}}
    two = {"gateway": {"peers": ("spark-1",)}, "models": {"qwen": smaller}}
    offer = host_offer(tmp_path, more={"gateway": {"peers": ("spark-2",)}}, two=two)
    assert {model.name: model.context for model in offer.models}["qwen"] == 65536
