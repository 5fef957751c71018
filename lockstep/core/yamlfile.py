"""A strict YAML reader: it refuses duplicate keys, and every key remembers its line."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from lockstep.core.errors import LockstepError

if TYPE_CHECKING:
    from yaml import SafeLoader as FastLoader
elif yaml.__with_libyaml__:
    from yaml.composer import Composer
    from yaml.constructor import SafeConstructor
    from yaml.cyaml import CParser
    from yaml.resolver import Resolver

    class FastLoader(Composer, CParser, SafeConstructor, Resolver):
        """A SafeLoader over PyYAML's C parser, in a third of its time.

        CSafeLoader does not serve: its composer overflows the stack on deeply nested text.
        """

        def __init__(self, stream: str) -> None:
            CParser.__init__(self, stream)
            Composer.__init__(self)
            SafeConstructor.__init__(self)
            Resolver.__init__(self)
else:
    FastLoader = yaml.SafeLoader

# Bytes. A recipe is a page of text; a larger file is a wrong file, and only costs time to parse.
LARGEST_FILE = 1_000_000


class Mapping(dict[str, Any]):
    """A YAML mapping that knows the line (from 1) of each of its keys."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, int] = {}


class _Fast(FastLoader):
    """A SafeLoader whose mappings refuse duplicate keys and keep line numbers."""

    def construct_strict(self, node: yaml.MappingNode) -> Any:
        mapping = Mapping()
        yield mapping
        self.flatten_mapping(node)
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            name, fault = str(key), ""
            if not isinstance(key, Hashable):
                fault = "a key must be a plain word"
            elif name in mapping.lines:
                fault = f"key {name!r} stands twice (first on line {mapping.lines[name]})"
            if fault:
                raise yaml.constructor.ConstructorError(None, None, fault, key_node.start_mark)
            mapping.lines[name] = key_node.start_mark.line + 1
            mapping[name] = self.construct_object(value_node, deep=True)


class _Clear(yaml.SafeLoader):
    """The same loader over the Python parser, which has the better messages."""


for _loader in (_Fast, _Clear):
    _loader.add_constructor("tag:yaml.org,2002:map", _Fast.construct_strict)


def read_mapping(path: Path, error: type[LockstepError] = LockstepError) -> Mapping:
    """Read ``path`` as one YAML mapping.

    Raises:
        error: unreadable, not UTF-8, not YAML, a duplicate key, or not a mapping.
    """
    return parse_mapping(read_text(path, error), str(path), error)


def read_text(path: Path, error: type[LockstepError] = LockstepError) -> str:
    """Return the text of ``path``, for `parse_mapping`.

    Raises:
        error: unreadable, not UTF-8, or larger than `LARGEST_FILE`.
    """
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise error(
                "the file is too large to be read as YAML",
                where=str(path),
                found=f"{path.stat().st_size} bytes",
                allowed=f"at most {LARGEST_FILE} bytes",
            )
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as fault:
        raise error(
            "the file is not UTF-8 text",
            where=str(path),
            found=f"byte 0x{fault.object[fault.start]:02x} at offset {fault.start}",
            remedy="Save it as UTF-8.",
        ) from fault
    except (OSError, ValueError) as fault:
        reason = getattr(fault, "strerror", None) or str(fault)
        raise error("the file cannot be read", where=str(path), found=reason) from fault


def parse_mapping(text: str, where: str, error: type[LockstepError] = LockstepError) -> Mapping:
    """Parse text that came from elsewhere, as `read_mapping` does; ``where`` names the text."""
    try:
        try:
            document = yaml.load(text, Loader=_Fast)
        except yaml.YAMLError:
            document = yaml.load(text, Loader=_Clear)
    except yaml.MarkedYAMLError as fault:
        mark = fault.problem_mark or fault.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise error(
            "the file is not valid YAML",
            where=f"{where}{line}",
            found=str(fault.problem or fault.context).removeprefix("found "),
            remedy="Correct that line.",
        ) from fault
    except (yaml.YAMLError, ValueError, RecursionError) as fault:
        first_line = (str(fault).splitlines() or [type(fault).__name__])[0]
        raise error("the file is not valid YAML", where=where, found=first_line) from fault
    if not isinstance(document, Mapping):
        raise error(
            "the file must hold one YAML mapping (key: value lines)",
            where=where,
            found="nothing" if document is None else f"a {type(document).__name__}",
        )
    return document


def place(where: str, mapping: dict[str, Any], key: str) -> str:
    """Return ``file.yaml:12`` for a key of a mapping that this module read, else just the file."""
    line = mapping.lines.get(key) if isinstance(mapping, Mapping) else None
    return f"{where}:{line}" if line else where


def part(mapping: dict[str, Any], keys: Iterable[str]) -> Mapping:
    """Return those of the keys that a mapping has, with their lines."""
    inner_mapping = Mapping()
    inner_mapping.update((key, mapping[key]) for key in keys if key in mapping)
    inner_mapping.lines = mapping.lines if isinstance(mapping, Mapping) else {}
    return inner_mapping
