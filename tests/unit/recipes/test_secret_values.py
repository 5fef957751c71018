"""A secret in a recipe's command or environment ends there."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from lockstep.cli.main import main
from lockstep.core.errors import RecipeError
from lockstep.fit import catalogue as catalogues
from lockstep.fit.recipe_checks import check
from lockstep.recipes import recipe_file

KNOWN = catalogues.load()
TOKEN = "hf_" + "a" * 34


@pytest.mark.parametrize(
    ("words", "env", "secret_names"),
    [
        ("--api_k=sk-1", "", ["--api-key"]),
        (f"--more-of-it {TOKEN}", "", ["--more-of-it"]),
        ('--more-config \'{"a": {"apiKey": "s3"}}\'', "", ["--more-config"]),
        ("--more-config.a.auth_token s3", "", ["--more-config"]),
        ("--env NGC_API_KEY=s3", "", ["NGC_API_KEY"]),
        ("", f"HF_TOKEN: {TOKEN}", ["HF_TOKEN"]),
        # One is inside the other.
        ("--api-key bb", "A: hf_s3bbs3bbs3bbs3bbs3bb", ["--api-key", "A"]),
        ("", "OPENAI_API_KEY: $OPENAI_API_KEY", ["OPENAI_API_KEY"]),
        ("", 'A: \'{"b": [{"password": "s3"}]}\'', ["A"]),
        ("", "PROXY: http://me:s3@proxy:3128", ["PROXY"]),
        ("--ssl-keyfile /k --allow-credentials", "TOKENIZERS_PARALLELISM: false", []),
        ("--a-per-token 8 --to-first-token=2", "HF_HUB_DISABLE_IMPLICIT_TOKEN: 1", []),
        ('--hf-overrides \'{"pad_token": "<pad>", "key": "x"}\'', "A: sk-learn", []),
    ],
)
def test_a_secret_is_refused_wherever_it_is_written_and_never_shown(
    words: str, env: str, secret_names: list[str], tmp_path: Path
):
    path = tmp_path / "secret.yaml"
    command = f"command: |\n  vllm serve {{model}} {words}\n"
    env_lines = f"env:\n  {env}\n" if env else ""
    path.write_text(f"model: a/b\ncontainer: a/b:1\n{command}{env_lines}")
    findings = [
        (item.severity, item.message.partition(":")[0])
        for item in check(recipe_file.load(path), KNOWN)
        if item.code == "secret-on-command-line"
    ]
    assert findings == ([("error", ", ".join(secret_names))] if secret_names else [])
    output = CliRunner().invoke(main, ["recipe", "show", str(path)]).output
    assert not re.search(r"sk-1|s3|hf_aa", output)


@pytest.mark.parametrize(
    "env", ["[HF_TOKEN=s3cret]", "{HF_TOKEN: [s3cret]}", '{HF_TOKEN: "s3cret\\n"}', "s3cret"]
)
def test_a_file_that_is_refused_does_not_show_it(env: str) -> None:
    with pytest.raises(RecipeError) as error:
        recipe_file.parse(f"model: a/b\nenv: {env}\n", Path("x.yaml"))
    assert "s3cret" not in str(error.value) and "env" in str(error.value)
