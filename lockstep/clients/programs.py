"""The configuration of each client program, in the program's own form.

Every form was read in the documentation named beside it, and then tried: the program, in the
version named, asked a stand-in gateway with it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lockstep.clients.offer import GatewayOffer, OfferedModel

#: The environment variable with the key, if no file has it.
VARIABLE = "LOCKSTEP_KEY"
#: A placeholder for programs that demand a key if the gateway asks for none. The gateway takes it
#: as no key.
NO_KEY = "none"
_PROVIDER = "lockstep"
#: Sizes by which Claude Code asks for models.
_SIZES = ("FABLE", "OPUS", "SONNET", "HAIKU")


@dataclass(frozen=True)
class ClientFile:
    """One file of a configuration: the path where the program looks for it, and its text."""

    path: str
    text: str


@dataclass(frozen=True)
class Program:
    """One client program.

    Attributes:
        parts: Makes the files, given the offer and the key's file (None: the variable).
        trusts: Variable with the path of a file of certificates to trust.
        variable: Variable from which the program reads the key.
        reads_file: True if the program reads the key's file itself.
    """

    parts: Callable[[GatewayOffer, Path | None], tuple[ClientFile, ...]]
    trusts: str = "NODE_EXTRA_CA_CERTS"
    variable: str = VARIABLE
    reads_file: bool = True


def _json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"


def _yaml(value: object) -> str:
    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True))


def _toml(values: Mapping[str, object]) -> str:
    """Return one table; TOML writes these texts and numbers as JSON does."""
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


def reading(key: Path | None) -> str:
    """Return a shell's words that print the key."""
    if key is None:
        return f'"${{{VARIABLE}:-{NO_KEY}}}"'
    return f'"$(cat {shlex.quote(str(key))})"'


def _opencode(offer: GatewayOffer, key: Path | None) -> tuple[ClientFile, ...]:
    wait_ms = offer.wait_s * 1000
    first = f"{_PROVIDER}/{offer.chat[0].name}"
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": f"Lockstep on {offer.host}",
        "options": {
            "baseURL": f"{offer.url}/v1",
            "apiKey": f"{{file:{key}}}" if key else f"{{env:{VARIABLE}}}",
            "headerTimeout": wait_ms,
            "chunkTimeout": wait_ms,
        },
        "models": {model.name: _opencode_model(model) for model in offer.chat},
    }
    whole = {
        "$schema": "https://opencode.ai/config.json",
        "model": first,
        "small_model": first,
        "provider": {_PROVIDER: provider},
    }
    return (ClientFile("~/.config/opencode/opencode.json", _json(whole)),)


def _opencode_model(model: OfferedModel) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": _title(model)}
    if model.images:
        entry["attachment"] = True
        entry["modalities"] = {"input": ["text", "image"], "output": ["text"]}
    if model.context is not None:
        entry["limit"] = {"context": model.context, "output": model.output}
    return entry


def _claude(offer: GatewayOffer, key: Path | None) -> tuple[ClientFile, ...]:
    model = offer.chat[0]
    variables = {
        "ANTHROPIC_BASE_URL": offer.url,
        "ANTHROPIC_MODEL": model.name,
        **{f"ANTHROPIC_DEFAULT_{size}_MODEL": model.name for size in _SIZES},
        "API_TIMEOUT_MS": str(offer.wait_s * 1000),
        "CLAUDE_STREAM_IDLE_TIMEOUT_MS": str(offer.wait_s * 1000),
        # Otherwise the prompt begins with a line that changes each time, and the engine reads all
        # of the prompt again.
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    if model.context is not None:
        variables |= {
            "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(model.context),
            "CLAUDE_CODE_AUTO_COMPACT_WINDOW": str(model.context),
            "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(model.output),
        }
    text = _json({"env": variables, "apiKeyHelper": f"echo {reading(key)}"})
    return (ClientFile("~/.claude/settings.json", text),)


def _codex(offer: GatewayOffer, _: Path | None) -> tuple[ClientFile, ...]:
    model = offer.chat[0]
    settings: dict[str, object] = {"model": model.name, "model_provider": _PROVIDER}
    if model.context is not None:
        settings["model_context_window"] = model.context
    provider = {
        "name": f"Lockstep on {offer.host}",
        "base_url": f"{offer.url}/v1",
        "wire_api": "responses",
        # With a command for the key, Codex would ask for a list of models in a form of its own.
        "env_key": VARIABLE,
        "stream_idle_timeout_ms": offer.wait_s * 1000,
    }
    text = f"{_toml(settings)}\n[model_providers.{_PROVIDER}]\n{_toml(provider)}"
    return (ClientFile("~/.codex/lockstep.config.toml", text),)


def _continue(offer: GatewayOffer, _: Path | None) -> tuple[ClientFile, ...]:
    models = [_continue_model(offer, model) for model in offer.models if model.kind != "rerank"]
    text = _yaml({"name": "Lockstep", "version": "1.0.0", "schema": "v1", "models": models})
    return (ClientFile("~/.continue/config.yaml", text),)


def _continue_model(offer: GatewayOffer, model: OfferedModel) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": _title(model),
        "provider": "openai",
        "model": model.name,
        "apiBase": f"{offer.url}/v1",
        "apiKey": f"${{{{ secrets.{VARIABLE} }}}}",
        "roles": ["chat", "edit", "apply"] if model.kind == "chat" else ["embed"],
        # Seconds.
        "requestOptions": {"timeout": offer.wait_s},
    }
    if model.kind == "chat":
        entry["capabilities"] = ["tool_use", *(["image_input"] if model.images else [])]
        if model.context is not None:
            entry["defaultCompletionOptions"] = {
                "contextLength": model.context,
                "maxTokens": model.output,
            }
    return entry


def _aider(offer: GatewayOffer, _: Path | None) -> tuple[ClientFile, ...]:
    first = f"openai/{offer.chat[0].name}"
    options = {
        "model": first,
        "weak-model": first,
        "editor-model": first,
        "openai-api-base": f"{offer.url}/v1",
        # Seconds.
        "timeout": offer.wait_s,
    }
    models = {
        f"openai/{model.name}": {
            "litellm_provider": "openai",
            "mode": "chat",
            "max_input_tokens": model.context,
            "max_output_tokens": model.output,
            "max_tokens": model.output,
            "input_cost_per_token": 0,
            "output_cost_per_token": 0,
        }
        for model in offer.chat
        if model.context is not None
    }
    return (
        ClientFile("~/.aider.conf.yml", _yaml(options)),
        ClientFile("~/.aider.model.metadata.json", _json(models)),
    )


def _openai(offer: GatewayOffer, key: Path | None) -> tuple[ClientFile, ...]:
    names = ", ".join(model.name for model in offer.models)
    text = f"""\
# Models: {names}
# The time-out is an argument: OpenAI(timeout={offer.wait_s})
export OPENAI_BASE_URL={offer.url}/v1
export OPENAI_API_KEY={reading(key)}
"""
    return (ClientFile("your shell", text),)


def _title(model: OfferedModel) -> str:
    return model.name if model.name == model.model_name else f"{model.name} ({model.model_name})"


# docs/clients.md has the page of each one's documentation, and the version that was tried.
PROGRAMS: Mapping[str, Program] = {
    "aider": Program(_aider, trusts="SSL_CERT_FILE", variable="OPENAI_API_KEY", reads_file=False),
    "claude": Program(_claude),
    "codex": Program(_codex, trusts="CODEX_CA_CERTIFICATE", reads_file=False),
    "continue": Program(_continue, reads_file=False),
    "openai": Program(_openai, trusts="SSL_CERT_FILE"),
    "opencode": Program(_opencode),
}
