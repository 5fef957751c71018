"""The removal of private words from a whole document, all in this module.

Names of hosts and accounts become letters and numbers, so that a reader can still tell them apart.
A word in brackets replaces everything else. A text that may be either a version or an address
counts as an address: people can ask for lost text, but nobody can take back sent text.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

# Names of systemd units look like mail addresses.
_UNIT = re.compile(r"\.(?:service|socket|timer|path|target|mount|slice|scope|device)$")
# The label of a known person's name.
_ACCOUNT = re.compile(r"account-\d+")
# Unlike words, random text often changes between capitals, small letters and digits.
_PIECE = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_WORD_LENGTH = 4

_Change = str | Callable[[re.Match[str]], str]


@dataclass(frozen=True)
class KnownWords:
    """The replacements of words that are known to name a person or a thing.

    Attributes:
        hosts: Names of hosts; the domain behind such a name goes with it.
        words: Anything else.
    """

    hosts: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)


def scrub(document: Any, known_words: KnownWords) -> Any:
    """Return a document of lists, mappings and texts without private words.

    Keys of mappings stay, because they are the page's own words and no host's.
    """
    return _replace(document, (*_patterns(known_words), *_PATTERNS))


def _replace(document: Any, changes: tuple[tuple[re.Pattern[str], _Change], ...]) -> Any:
    if isinstance(document, str):
        for pattern, change in changes:
            document = pattern.sub(change, document)
        return document
    if isinstance(document, Mapping):
        return {key: _replace(value, changes) for key, value in document.items()}
    if isinstance(document, (list, tuple)):
        return [_replace(value, changes) for value in document]
    return document


def _patterns(known_words: KnownWords) -> list[tuple[re.Pattern[str], _Change]]:
    patterns: list[tuple[re.Pattern[str], _Change]] = []
    for labels, behind in (
        (known_words.hosts, r"(?:\.[A-Za-z][A-Za-z0-9-]*)*"),
        (known_words.words, ""),
    ):
        lower = {word.lower(): label for word, label in labels.items()}
        if lower:
            # A longer name may begin with a shorter one.
            every = "|".join(re.escape(word) for word in sorted(lower, key=len, reverse=True))
            pattern = rf"(?<![A-Za-z0-9])({every}){behind}(?![A-Za-z0-9])"
            patterns.append((re.compile(pattern, re.IGNORECASE), _label(lower)))
    return patterns


def _label(labels: Mapping[str, str]) -> Callable[[re.Match[str]], str]:
    return lambda match: labels[match[1].lower()]


def _mail(match: re.Match[str]) -> str:
    mail_match = _ACCOUNT.fullmatch(match[1]) or _UNIT.search(match[0])
    return match[0] if mail_match else "[mail]"


def _address(match: re.Match[str]) -> str:
    """Return the replacement of an address, or the address itself if every machine has it."""
    # "ADDRESS: words about it" holds an address too.
    for text in (match[1], match[1].removesuffix(":")):
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            continue
        if address.is_loopback or address.is_unspecified:
            return match[0]
        return f"[address]{match[1].removeprefix(text)}"
    # Four numbers count as an address in any case. Times and other words with colons do not.
    return match[0] if ":" in match[1] else "[address]"


def _random(match: re.Match[str]) -> str:
    text = match[0]
    classes = (str.islower, str.isupper, str.isdigit)
    pieces = _PIECE.findall(text)
    is_mixed = all(any(map(has, text)) for has in classes)
    words = sum(map(len, pieces)) >= _WORD_LENGTH * len(pieces)
    return "[secret]" if is_mixed and not words else text


_SECRET = r"pass(?:word|wd|phrase)|secret|token(?!s)|credential|psk|cookie|authorization"
_KEY = r"(?:api|access|auth|private|host|encryption|session|signing)[_-]?key"

# Borders of a word. "_" is no part of a word, because it precedes names that a program invented.
_START, _END = r"(?<![A-Za-z0-9])", r"(?![A-Za-z0-9])"

# The patterns with their replacements.
_CHANGES: tuple[tuple[str, _Change], ...] = (
    (r"(?s)-----BEGIN [^-]*-----.*?(?:-----END [^-]*-----|\Z)", "[key]"),
    (r"(?:ssh-|ecdsa-|sk-ssh-|sk-ecdsa-)[\w.@-]+ +[A-Za-z0-9+/=]{20,}.*", "[key]"),
    (r"(?:SHA256:[A-Za-z0-9+/=_-]{20,}|MD5:[0-9a-fA-F:]{20,})", "[fingerprint]"),
    (r"[A-Za-z][A-Za-z0-9+.-]*://[^\s/]\S*", "[address]"),
    (r"(?i:bearer|basic) +[A-Za-z0-9+/=_.~-]{6,}", "[secret]"),
    # To the end of the line, because a password may contain spaces, quotes and commas.
    (rf"(?i)([\w.-]*(?:{_SECRET}|{_KEY})[\w.-]*[\"']?(?: *[:=]| is)).*", r"\1 [secret]"),
    (rf"(?i)(--[\w-]*(?:{_SECRET}|{_KEY})[\w-]* ).*", r"\1[secret]"),
    (r"(?i)([\w.-]*(?:serial|s/n|asset.?tag)[\w. -]*[\"']? *[:=] *)\S+", r"\1[serial]"),
    (
        _START + r"(?:hf|sk|gh[a-z]|github_pat|glpat|nvapi|xox[a-z]|dckr_pat|pypi|npm|tskey)"
        r"[-_][\w.=-]{16,}",
        "[secret]",
    ),
    (_START + r"eyJ[\w-]{8,}\.[\w-]+\.[\w-]*", "[secret]"),
    (_START + r"(?:AKIA|ASIA)[A-Z0-9]{16}" + _END, "[secret]"),
    (
        r"(?i)" + _START + r"(?:GPU-|MIG-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}" + _END,
        "[id]",
    ),
    (r"(?i)" + _START + r"[0-9a-f]{2}([:-])[0-9a-f]{2}(?:\1[0-9a-f]{2}){4,}" + _END, "[MAC]"),
    (r"(?i)" + _START + r"[0-9a-f]{4}(?:\.[0-9a-f]{4}){2}" + _END, "[MAC]"),
    # An interface with its address in its name.
    (_START + r"((?:en|wl|ww|ib|sl)x)[0-9a-f]{12}", r"\1[MAC]"),
    (r"(?i)" + _START + r"(?=[0-9a-f]*\d)(?=\d*[a-f])[0-9a-f]{12}" + _END, "[id]"),
    (r"(?i)" + _START + r"(?=[0-9a-f]*\d)(?=\d*[a-f])[0-9a-f]{20,}" + _END, "[id]"),
    (r"([\w.+-]+)@(?:\[host\]|spark-[A-Z0-9]+\b|[\w-]+(?:\.[\w-]+)+)", _mail),
    (
        r"(?i)\b[\w-]+(?:\.[\w-]+)*\.(?:local|localdomain|lan|home|internal|corp|arpa"
        r"|ts\.net|fritz\.box)\b",
        "[host]",
    ),
    (r"(/home/|/Users/|/run/user/)[^/\s\"']+", r"\1[account]"),
    (r"(?<![A-Za-z0-9])([0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,8})(?:%\w+)?", _address),
    (r"(?i)(?<![0-9a-f:])[0-9a-f]{4}(?::[0-9a-f]{4}){3}(?![0-9a-f:])", "[id]"),
    (r"(?<!\d)(?<!\d\.)(\d{1,3}(?:\.\d{1,3}){3})(?!\d)(?!\.\d)", _address),
    (r"[A-Za-z0-9_+/=-]{28,}", _random),
)
_PATTERNS = tuple((re.compile(pattern), change) for pattern, change in _CHANGES)
