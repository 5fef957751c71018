"""YAML from elsewhere: text that is made to break a parser gives an error like any other."""

import pytest

from lockstep.core.errors import LockstepError
from lockstep.core.yamlfile import parse_mapping


def test_a_text_that_breaks_a_parser_is_an_error_and_keys_know_their_lines() -> None:
    for text, message in (
        ("a: " + "[" * 500_000, "maximum recursion depth exceeded"),
        ("a: " + "{a: " * 5000, "maximum recursion depth exceeded"),
        ("a: &x [*x]", "unconstructable recursive node"),
        ("env: [\n", "expected the node content, but found '<stream end>'"),
        ("a: 1\nb: {c: 1, c: 2}\n", "key 'c' stands twice (first on line 2)"),
    ):
        with pytest.raises(LockstepError) as error:
            parse_mapping(text, "recipe.yaml")
        assert "recipe.yaml" in str(error.value) and message in str(error.value)
    mapping = parse_mapping("a: 1\nb:\n  c:\n    - d: x\n", "recipe.yaml")
    assert mapping.lines == {"a": 1, "b": 2}
    assert mapping["b"]["c"][0].lines == {"d": 4}
