"""Secrets in a recipe: by the name of a flag, variable or JSON key, or by the form of a value.

Units, `docker inspect` and the process list show the whole command line and environment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from lockstep.onhost.engines.command_line_flags import is_flag

HIDDEN = "(secret)"
# It must not match `--ssl-keyfile`, `--speculative-token-map`,
# `--kt-max-deferred-experts-per-token` or MAX_TOKENS.
_NAME = re.compile(
    r"(?:(?:[-_.]|api|access|auth|secret|private)key"
    r"|(?:^|[-_.]|api|access|auth)(?:(?<!per.)(?<!first.)token|secret|passw(?:or)?d|passphrase|credentials?|pat))$",
    re.IGNORECASE,
)
# Forms of Hugging Face, OpenAI and its like, NVIDIA, GitHub, and a login inside an address.
_FORM = re.compile(
    r"\b(?:hf_|sk-|nvapi-|gh[pousr]_|github_pat_|glpat-)[\w-]{16,}|(?<=://)[^/\s:@]*:[^/\s@]+(?=@)"
)
# A switch, and a word of a vocabulary ("pad_token": "<pad>"), are no secrets.
_PLAIN = re.compile(r"|true|false|null|none|[01]|<.*>|\[.*\]", re.IGNORECASE | re.DOTALL)


def of_command(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (flag or variable, secret) for each secret in a command line."""
    flag = ""
    for word in argv:
        name, equals_sign, value = word.partition("=")
        if is_flag(word):
            flag = name
        elif not equals_sign or not name.isidentifier():
            # The word is the value of the flag before it; `NAME=VALUE` is a variable.
            name, value = flag, word
        yield from ((name, secret) for secret in _in_text(name, value))


def of_variables(variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (variable, secret) for each secret in an environment."""
    for name, value in variables.items():
        yield from ((name, secret) for secret in _in_text(name, value))


def hide(text: str, secrets: Iterable[tuple[str, str]]) -> str:
    """Return a word of a command line, or a value, without these secrets."""
    # The longest comes first: a short one inside it would leave the rest of it readable.
    for secret in sorted((secret for _, secret in secrets), key=len, reverse=True):
        # JSON may show a secret with escapes.
        for form in (secret, json.dumps(secret)[1:-1]):
            text = text.replace(form, HIDDEN)
    return text


def _in_text(name: str, value: str) -> Iterator[str]:
    if value[:1] in ("{", "["):
        try:
            yield from _in_json(name, json.loads(value))
            return
        except (ValueError, RecursionError):
            pass
    if _NAME.search(name) and not _PLAIN.fullmatch(value):
        yield value
    else:
        yield from (found[0] for found in _FORM.finditer(value))


def _in_json(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner_value in value.items():
            yield from _in_json(str(key), inner_value)
    elif isinstance(value, list):
        for inner_value in value:
            yield from _in_json(name, inner_value)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield from _in_text(name, str(value))
