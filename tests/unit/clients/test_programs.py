"""Configurations of client programs: they parse, and say what the gateway offers."""

import json
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import yaml

from lockstep.clients.offer import GatewayOffer, OfferedModel
from lockstep.clients.programs import PROGRAMS

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
