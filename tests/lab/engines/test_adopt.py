"""Engines that somebody else starts, as `lockstep adopt` shows them: by real systemd and Docker."""

import re
from pathlib import Path

import pytest

from lockstep.recipes.command import environment, serve_command
from lockstep.recipes.recipe_file import Recipe, parse

SECRETS = ("hf_0123456789abcdefghij", "sk-of-the-unit", "word-of-the-container")
UNIT = "theirs@org-Chat.service"
FILES = {
    "/opt/theirs/vllm": "#!/bin/sh\nexec sleep infinity\n",
    "/etc/theirs-org-Chat.env": f"PORT=8100\nMORE=--seed 7 --enforce-eager\nLOGIN={SECRETS[0]}\n",
    "/etc/systemd/system/theirs@.service": f"""\
[Service]
Environment=PORT=8000 VLLM_LOGGING_LEVEL=DEBUG "VLLM_API_KEY={SECRETS[1]}"
EnvironmentFile=/etc/theirs-%i.env
ExecStart=/opt/theirs/vllm serve %I --port ${{PORT}} --api-key ${{VLLM_API_KEY}} \\
    --speculative-config '{{"method": "mtp"}}' $MORE
""",
}


@pytest.fixture
def foreign_host(deployed_stack):
    """A Spark on which an instance of a template runs, and a container has been made."""
    host = deployed_stack.spark1
    for path, text in FILES.items():
        host.root(f"mkdir -p $(dirname {path}) && cat > {path} <<'END'\n{text}END\n")
    host.root(f"chmod 755 /opt/theirs/vllm; systemctl daemon-reload; systemctl start {UNIT}")
    host.root(
        "docker create --name theirs-chat -v /srv/llm:/models:ro -v cache:/cache"
        f" -e HF_HUB_OFFLINE=1 -e MY_PASSWORD={SECRETS[2]} --entrypoint llama-server"
        " $(docker images -q | head -n 1) --model /models/chat.gguf -c 4096"
    )
    yield host
    host.root(
        f"systemctl stop {UNIT}; rm -r /opt/theirs {' '.join(list(FILES)[1:])};"
        " systemctl daemon-reload; docker rm theirs-chat; docker volume rm cache"
    )


def test_a_unit_and_a_container_become_recipes_without_their_secrets(deployed_stack, foreign_host):
    result = deployed_stack.lockstep("adopt", foreign_host.name)
    assert result.code == 0, result.text
    assert not [secret for secret in SECRETS if secret in result.text]
    unit, container = recipes(result.out)
    assert serve_command(unit)[:5] == ("vllm", "serve", "org/Chat", "--port", "8100")
    assert {"--seed", "--enforce-eager", '{"method": "mtp"}'} <= set(serve_command(unit))
    assert "--api-key" not in serve_command(unit)
    assert environment(unit)["VLLM_LOGGING_LEVEL"] == "DEBUG"
    assert container.model == "/srv/llm/chat.gguf" and container.container
    assert environment(container)["HF_HUB_OFFLINE"] == "1"
    assert f"unit {UNIT} on {foreign_host.name}, running." in result.out
    for word in ("VLLM_API_KEY", "LOGIN", "MY_PASSWORD", "/srv/llm at /models", "docker stop"):
        assert word in result.out, word


def recipes(output: str) -> list[Recipe]:
    """The recipes of an answer, units first."""
    texts = re.findall(r"^--- ([\w.-]+\.yaml),[^\n]*\n(.*?)^--- ", output, re.MULTILINE | re.DOTALL)
    return [parse(text, Path(name)) for name, text in texts]
