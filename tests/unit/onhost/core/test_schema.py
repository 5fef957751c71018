"""Plain values into dataclasses: types, rules beside them, and errors with file, line and key."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest

from lockstep.core.errors import CatalogueError, InventoryError
from lockstep.core.yamlfile import parse_mapping
from lockstep.onhost.core import schema
from lockstep.onhost.core.schema import ImpliedFields, between, pattern_rule

Port = Annotated[int, between(1, 9, "is not a port")]
Word = Annotated[str, pattern_rule("[a-z]+", "is no word", "small letters", remedy="Shorten it.")]
Url = Annotated[str, pattern_rule("https://.*", "is no address", "https://…", has_password=True)]


@dataclass(frozen=True)
class Size:
    """A type that decides for its values by itself."""

    value: int | str
    unit: str


@dataclass(frozen=True)
class Switchable:
    """A type that may be on or off."""

    enabled: bool = False


@dataclass(frozen=True)
class Data:
    """One field of each kind."""

    port: Port | None = 1
    ports: tuple[Port, ...] = ()
    words: Mapping[Word, Word] = field(default_factory=dict)
    urls: Mapping[str, Url] = field(default_factory=dict)
    shape: Literal["pair", "ring"] = "pair"
    size: Annotated[Size, ImpliedFields({"unit": "GiB"})] | None = None
    text: str = "default"
    extras: Mapping[str, Any] = field(default_factory=dict)
    switchable: Switchable = field(default_factory=Switchable)


def read(values: Any) -> Data:
    return schema.build(Data, values, where="site.py", error=InventoryError)


def test_values_become_what_their_fields_say() -> None:
    values = {"port": None, "ports": [2, 3], "words": {"a": "b"}, "size": {"value": 7}}
    assert read(values) == Data(None, (2, 3), {"a": "b"}, size=Size(7, "GiB"))
    assert read({"size": {"value": "5-7"}}).size == Size("5-7", "GiB")
    assert read({}) == Data()
    # What is not described is kept as it is.
    document = parse_mapping("extras: {a: [1, {b: 2}]}\n", "a.yaml")
    assert read(document).extras is document["extras"]


PORTS, WORDS = "allowed: 1 to 9.", "allowed: small letters. Shorten it."
LIST, MAPPING = "must be a list; found", "must be a mapping; found"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"port": 10}, f"port is not a port; found 10; {PORTS}"),
        ({"port": True}, f"port must be a whole number; found True; {PORTS}"),
        ({"ports": [2, 0]}, f"ports[1] is not a port; found 0; {PORTS}"),
        ({"ports": "2"}, f"ports {LIST} '2'. Write ('2',): the comma makes it a list."),
        ({"ports": 2}, f"ports {LIST} 2."),
        ({"switchable": True}, f'switchable {MAPPING} True. Write {{"enabled": True}}.'),
        ({"words": []}, f"words {MAPPING} []."),
        ({"size": True}, f"size {MAPPING} True."),
        ({"shape": "rign"}, "shape is not known; found 'rign'. Did you mean 'ring'? Allowed: pair"),
        ({"shape": ["pair"]}, "shape is not known; found ['pair']; allowed: pair, ring."),
        ({"words": {"a": "B"}}, f"words.a is no word; found 'B'; {WORDS}"),
        ({"words": {"A b": "b"}}, f"words['A b'] is no word; found 'A b'; {WORDS}"),
        (
            {"urls": {"https://me:secret@here/": "http://me:secret@there"}},
            "urls['https://here/'] is no address; found 'there'; allowed: https://….",
        ),
        ({"size": {"value": 1.5}}, "size.value must be a whole number or text; found 1.5."),
        ({"size": {}}, "size.value is missing. Add size.value."),
        ({"size": {"value": 1, "unit": "GB"}}, "unknown key 'unit' in size; allowed: value. Re"),
        ({"text": "a\nb"}, "text spans lines; found 'a\\nb'."),
        ({"text": None}, "text must be text; found None."),
        ([], f"the value {MAPPING} []."),
    ],
)
def test_what_does_not_fit_is_refused_with_its_key(values: Any, message: str) -> None:
    with pytest.raises(InventoryError) as error:
        read(values)
    assert str(error.value).startswith(f"site.py: {message}")


def test_all_faults_are_for_whoever_asks_for_them_and_the_first_for_others() -> None:
    values = {
        **{"prt": 1, "port": 10, "ports": [0, 1, 99], "words": {"A": "B", "b": "c"}},
        **{"size": {"unit": "GB"}, "text": 1},
    }
    messages = []

    def of_all(faults):
        messages.extend(fault.summary for fault in faults)
        return faults[-1]

    with pytest.raises(InventoryError, match="text must be text"):
        schema.convert(Data, values, where="site.py", key="", error=InventoryError, of_all=of_all)
    assert messages == [
        *("unknown key 'prt'", "port is not a port", "ports[0] is not a port"),
        *("ports[2] is not a port", "words.A is no word", "words.A is no word"),
        # What is missing may be what is mistyped.
        *("unknown key 'unit' in size", "text must be text"),
    ]
    with pytest.raises(InventoryError, match="unknown key 'prt'"):
        read(values)


def test_a_file_of_yaml_gives_lines_and_what_has_no_value_is_absent():
    text = "text:\nport: 3\nsize:\n  value: '7 '\nshape:\n"
    assert read(parse_mapping(text, "a.yaml")) == Data(3, size=Size("7", "GiB"))
    wrong = parse_mapping(f"{text}ports:\n- 1\n- 99\nwords:\n  a: b\n  c: 1\n", "a.yaml")
    with pytest.raises(CatalogueError, match=r"^a.yaml:6: an entry.ports\[1\] is not a port"):
        schema.build(Data, wrong, where="a.yaml", key="an entry", error=CatalogueError)
    del wrong["ports"]
    with pytest.raises(InventoryError, match=r"^site.py:11: words.c must be text; found 1; "):
        read(wrong)
    with pytest.raises(InventoryError, match=r"^site.py:2: unknown key 'prt'. .*'port'"):
        read(parse_mapping("text: a\nprt: 1\n", "a.yaml"))


def test_a_record_is_written_without_its_defaults_and_is_read_as_it_was() -> None:
    some = Data(ports=(2, 3), words={"a": "b"}, switchable=Switchable(enabled=True))
    values = {"ports": [2, 3], "words": {"a": "b"}, "switchable": {"enabled": True}}
    assert (schema.values_of(Data()), schema.values_of(some)) == ({}, values)
    # Rules of this version say nothing about a record of another one.
    options = {"where": "", "error": InventoryError, "strict": False}
    for record in (some, Data(port=None), Data(port=12, words={"A": "B"})):
        values = {**schema.values_of(record), "of_another_version": 1}
        assert schema.build(Data, values, **options) == record
