"""A draft that only the command names is fetched like one that the recipe states."""

from pathlib import Path

import pytest

from lockstep.fit import catalogue
from lockstep.fit.recipe_checks import check
from lockstep.recipes.block import Draft
from lockstep.recipes.draft import draft_of
from lockstep.recipes.recipe_file import parse

HEAD = 'recipe_version: "2"\nmodel: org/model\ncontainer: org/image:v1\n'
VLLM = HEAD + "command: |\n  vllm serve {model} "
SGLANG = HEAD + "runtime: sglang\ncommand: |\n  sglang serve --model-path {model} "
LLAMACPP = HEAD.replace("/model", "/model:Q4") + "command: |\n  llama-server -hf {model} "
PATH, OF_REVISION = "--speculative-draft-model-path", Draft("org/d", "4")
STATED = "\nlockstep:\n  draft: {model: org/other, licence: MIT}\n"


@pytest.mark.parametrize(
    ("text", "draft"),
    [
        (VLLM + """--speculative-config '{"method":"dflash","model":"org/d"}'""", Draft("org/d")),
        (VLLM + "--speculative-config.model org/d --speculative_config.revision 4", OF_REVISION),
        (SGLANG + f"{PATH}=org/d --speculative-draft-model-revision 4", OF_REVISION),
        (SGLANG + f"{PATH} org/d{STATED}", Draft("org/other", None, "MIT")),
        # On the host already, the model's own head, and no repository.
        (VLLM + """--speculative-config '{"model":"/data/d"}'""", None),
        (VLLM + """--speculative-config '{"method":"mtp","model":"org/model"}'""", None),
        (VLLM + """--speculative-config '{"model":"org/../d"}'""", None),
        # A file in a repository, which this engine does not look up.
        (LLAMACPP + "--model-draft org/d.gguf", None),
        # No command can be made.
        (VLLM + """--speculative-config 'not JSON'""", None),
    ],
)
def test_draft(text: str, draft: Draft | None) -> None:
    assert draft_of(parse(text, Path("r.yaml"))) == draft


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        (SGLANG + f"{PATH} org/d", False),
        (LLAMACPP + "--model-draft org/d.gguf", True),
        # Another one is stated than the engine would open.
        (SGLANG + f"{PATH} org/d{STATED}", True),
    ],
)
def test_a_draft_of_the_command_is_fetched_or_refused(text: str, is_refused: bool) -> None:
    codes = {finding.code for finding in check(parse(text, Path("r.yaml")), catalogue.load())}
    assert ("not-fetched" in codes) is is_refused
    assert is_refused or "draft-licence-unknown" in codes
