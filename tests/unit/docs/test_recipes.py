"""docs/recipes.md names every key and every finding, and its example is a valid recipe."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from lockstep.recipes import recipe_file
from lockstep.recipes.block import LockstepBlock
from lockstep.recipes.command import serve_command

ROOT = Path(__file__).parents[3]
DOCUMENT = (ROOT / "docs" / "recipes.md").read_text()
EXAMPLE = DOCUMENT.split("```yaml\n", 1)[1].split("```", 1)[0]


def test_the_example_is_a_valid_recipe_and_shows_every_lockstep_key_but_the_last() -> None:
    recipe = recipe_file.parse(EXAMPLE, Path("example.yaml"))
    assert serve_command(recipe)[-2:] == ("--moe-backend", "marlin")
    block = recipe.lockstep
    unset = {item.name for item in fields(LockstepBlock) if not getattr(block, item.name)}
    assert unset == {"known_bad", "vision"}  # vision is shown as false


def test_every_key_is_documented() -> None:
    documented_keys = set(re.findall(r"`(\w+)`", DOCUMENT))
    assert {item.name for item in fields(recipe_file.Recipe)} - documented_keys == {
        "hooks",
        "conditional",
        "misspelt",
        "path",
    }
    assert {item.name for item in fields(LockstepBlock)} - documented_keys == set()


def test_every_finding_is_documented_and_no_other() -> None:
    files = ("recipe_checks.py", "command_checks.py", "cluster_findings.py")
    sources = "".join((ROOT / "lockstep/fit" / name).read_text() for name in files)
    codes = set(re.findall(r'(?:finding|warning|error)\(\s*f?"([a-z{}.-]+)"', sources))
    families = {
        "{code}": ("licence", "draft-licence"),
        "{method}": ("eagle",),
        "{item.kind}": ("flag", "value", "variable"),
    }
    expanded_codes = {
        code.replace(mark, word)
        for code in codes
        for mark, words in families.items()
        for word in words
        if mark in code or not code.count("{")
    }
    table = DOCUMENT.split("## Findings", 1)[1]
    documented_codes = set(
        re.findall(r"`([a-z0-9-]+)`", " ".join(re.findall(r"^\| (`.*?) \|", table, re.M)))
    )
    assert documented_codes == expanded_codes
