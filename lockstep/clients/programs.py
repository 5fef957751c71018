"""The configuration of each client program, in its own form.

Every form was read in the documentation that is named beside it, and then tried: the program, in
the version named, asked a stand-in with it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lockstep.clients.offer import Model, Offer

#: Holds the key where none is in a file.
VARIABLE = "LOCKSTEP_KEY"
#: For programs that demand some key where none is asked for; the gateway takes it for none.
NO_KEY = "none"
_PROVIDER = "lockstep"
#: Models that Claude Code asks for by size.
_SIZES = ("FABLE", "OPUS", "SONNET", "HAIKU")


@dataclass(frozen=True)
class Part:
    """One file of a configuration: where the program looks for it, and its text."""

    path: str
    text: str


@dataclass(frozen=True)
class Program:
    """One client program.

    Attributes:
        source: Page of its documentation that the form is from.
        tried: Version that asked a gateway's stand-in with it, and when.
        parts: Makes its files, given the offer and the key's file, None for the variable.
        trusts: Variable that names a file with certificates to trust.
        variable: Variable that it reads the key from.
        reads_file: Whether it reads the key's file itself.
    """

    source: str
    tried: str
    parts: Callable[[Offer, Path | None], tuple[Part, ...]]
    trusts: str = "NODE_EXTRA_CA_CERTS"
    variable: str = VARIABLE
    reads_file: bool = True


def _json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"


def _yaml(value: object) -> str:
    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True))


def _toml(values: Mapping[str, object]) -> str:
    """One table; TOML writes these texts and numbers as JSON does."""
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


def reading(key: Path | None) -> str:
    """A shell's words that give the key."""
    if key is None:
        return f'"${{{VARIABLE}:-{NO_KEY}}}"'
    return f'"$(cat {shlex.quote(str(key))})"'


def _opencode(offer: Offer, key: Path | None) -> tuple[Part, ...]:
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
    return (Part("~/.config/opencode/opencode.json", _json(whole)),)


def _opencode_model(model: Model) -> dict[str, Any]:
    found: dict[str, Any] = {"name": _shown(model)}
    if model.images:
        found["attachment"] = True
        found["modalities"] = {"input": ["text", "image"], "output": ["text"]}
    if model.context is not None:
        found["limit"] = {"context": model.context, "output": model.output}
    return found


def _claude(offer: Offer, key: Path | None) -> tuple[Part, ...]:
    model = offer.chat[0]
    variables = {
        "ANTHROPIC_BASE_URL": offer.url,
        "ANTHROPIC_MODEL": model.name,
        **{f"ANTHROPIC_DEFAULT_{size}_MODEL": model.name for size in _SIZES},
        "API_TIMEOUT_MS": str(offer.wait_s * 1000),
        "CLAUDE_STREAM_IDLE_TIMEOUT_MS": str(offer.wait_s * 1000),
        # Otherwise the prompt begins with a line that changes each time, and the engine reads
        # all of it again.
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
    return (Part("~/.claude/settings.json", text),)


def _codex(offer: Offer, _: Path | None) -> tuple[Part, ...]:
    model = offer.chat[0]
    chosen: dict[str, object] = {"model": model.name, "model_provider": _PROVIDER}
    if model.context is not None:
        chosen["model_context_window"] = model.context
    provider = {
        "name": f"Lockstep on {offer.host}",
        "base_url": f"{offer.url}/v1",
        "wire_api": "responses",
        # A command that gives the key would make it ask for a list of models in a form of its own.
        "env_key": VARIABLE,
        "stream_idle_timeout_ms": offer.wait_s * 1000,
    }
    text = f"{_toml(chosen)}\n[model_providers.{_PROVIDER}]\n{_toml(provider)}"
    return (Part("~/.codex/lockstep.config.toml", text),)


def _continue(offer: Offer, _: Path | None) -> tuple[Part, ...]:
    models = [_continue_model(offer, model) for model in offer.models if model.kind != "rerank"]
    text = _yaml({"name": "Lockstep", "version": "1.0.0", "schema": "v1", "models": models})
    return (Part("~/.continue/config.yaml", text),)


def _continue_model(offer: Offer, model: Model) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": _shown(model),
        "provider": "openai",
        "model": model.name,
        "apiBase": f"{offer.url}/v1",
        "apiKey": f"${{{{ secrets.{VARIABLE} }}}}",
        "roles": ["chat", "edit", "apply"] if model.kind == "chat" else ["embed"],
        # Seconds.
        "requestOptions": {"timeout": offer.wait_s},
    }
    if model.kind == "chat":
        found["capabilities"] = ["tool_use", *(["image_input"] if model.images else [])]
        if model.context is not None:
            found["defaultCompletionOptions"] = {
                "contextLength": model.context,
                "maxTokens": model.output,
            }
    return found


def _aider(offer: Offer, _: Path | None) -> tuple[Part, ...]:
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
        Part("~/.aider.conf.yml", _yaml(options)),
        Part("~/.aider.model.metadata.json", _json(models)),
    )


def _openai(offer: Offer, key: Path | None) -> tuple[Part, ...]:
    names = ", ".join(model.name for model in offer.models)
    text = f"""\
# Models: {names}
# The time-out is an argument: OpenAI(timeout={offer.wait_s})
export OPENAI_BASE_URL={offer.url}/v1
export OPENAI_API_KEY={reading(key)}
"""
    return (Part("your shell", text),)


def _shown(model: Model) -> str:
    return model.name if model.name == model.target else f"{model.name} ({model.target})"


_TRIED = "2026-11-23"
PROGRAMS: Mapping[str, Program] = {
    "aider": Program(
        source="https://aider.chat/docs/llms/openai-compat.html",
        tried=f"aider-chat 0.86.2, {_TRIED}",
        parts=_aider,
        trusts="SSL_CERT_FILE",
        variable="OPENAI_API_KEY",
        reads_file=False,
    ),
    "claude": Program(
        source="https://code.claude.com/docs/en/env-vars",
        tried=f"@anthropic-ai/claude-code 2.1.197, {_TRIED}",
        parts=_claude,
    ),
    "codex": Program(
        source="https://developers.openai.com/codex/config-sample",
        tried=f"@openai/codex 0.169.0, {_TRIED}",
        parts=_codex,
        trusts="CODEX_CA_CERTIFICATE",
        reads_file=False,
    ),
    "continue": Program(
        source="https://docs.continue.dev/reference",
        tried=f"@continuedev/cli 1.5.47, {_TRIED}",
        parts=_continue,
        reads_file=False,
    ),
    "openai": Program(
        source="https://github.com/openai/openai-python",
        tried=f"openai 2.20.0, {_TRIED}",
        parts=_openai,
        trusts="SSL_CERT_FILE",
    ),
    "opencode": Program(
        source="https://opencode.ai/docs/providers/",
        tried=f"opencode-ai 1.18.33, {_TRIED}",
        parts=_opencode,
    ),
}
