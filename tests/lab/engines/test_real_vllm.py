"""The real vLLM on a host: its start by `switch.sh`, the gateway before it, and its end.

All of it at one start of vLLM, which takes a minute. Its chat template refuses repeated roles. The
packages `openai` and `anthropic` ask it.
"""

import json
import re
import shlex
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from stack import Host, a_key, end_key, until

from lab import RECIPES
from lab.host import connection, network
from lockstep.lock import lockfile

Conversation = Callable[[Any], None]
STRICT = {"strict": {"recipe": "strict-tools", "unit": "vllm-strict", "sense": "off"}}
MODEL = "tiny-qwen3-strict"
API, ENGINE = 8010, 9010
UNIT = "vllm-strict.service"
GATEWAY_PORT = 8090

TWO_IN_A_ROW = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Here is a file."},
    {"role": "user", "content": [{"type": "text", "text": "What does it say?"}]},
]
MERGED = [
    {"role": "system", "content": "Be brief."},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "Here is a file."},
            {"type": "text", "text": "\n\n"},
            {"type": "text", "text": "What does it say?"},
        ],
    },
]
ONE = ("-y", "--limit", "spark1")
REFUSED = "conversation roles must alternate"

ASKED: list[Any] = [{"role": "user", "content": "Say something."}]
# Whoever is made to call it can say one thing, and so does a model of random weights. vLLM holds
# a call to its schema only where the tool is `strict` (ran on 0.32.0).
WHERE: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
# A parser of plain JSON, and no room for a random model to fill with blanks.
PARSER = (
    "    --enable-auto-tool-choice --tool-call-parser granite \\\n"
    "    --structured-outputs-config.backend=xgrammar \\\n"
    "    --structured-outputs-config.disable_any_whitespace=true \\\n"
)
# Whoever has sent the head of a question and not its body is waited for by every web server.
HALF_A_QUESTION = rf"""
exec 3<>/dev/tcp/127.0.0.1/{ENGINE}
printf 'POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n' >&3
printf 'Content-Length: 100\r\n\r\n{{' >&3
cat <&3
"""


@pytest.fixture(scope="module")
def inventory(stack, tmp_path_factory):
    """The lab's inventory with one model more, which calls tools, and an open gateway."""
    recipes = tmp_path_factory.mktemp("recipes")
    plain = (Path(RECIPES) / "tiny-qwen3-strict.yaml").read_text()
    head, command, tail = plain.partition("    --served-model-name")
    (recipes / "strict-tools.yaml").write_text(head + PARSER + command + tail)
    more = {"models": STRICT, "recipe_folders": (RECIPES, str(recipes))}
    return stack.inventory("strict", gateway={"bind": "0.0.0.0", "plain": True}, **more)


@pytest.fixture(scope="module")
def host(stack, first, inventory):
    """spark1 with the strict model hot; undone afterwards."""
    stack.good_deploy(*ONE, inventory=inventory)
    answer = stack.spark1.switch("strict")
    assert answer.code == 0 and "strict is hot, started in" in answer.out, answer.text
    yield stack.spark1
    stack.spark1.switch("none")
    stack.good_deploy(*ONE)


@pytest.fixture(scope="module")
def in_lab(stack, host, inventory):
    """Has a conversation with a package's client at the open listener; its key is then revoked."""
    key = a_key(stack, inventory, "clara")
    url = f"http://{host.address}:{GATEWAY_PORT}"

    def have(conversation: Conversation) -> None:
        if conversation in OF_OPENAI:
            conversation(openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0))
        else:
            conversation(anthropic.Anthropic(base_url=url, api_key=key, max_retries=0))

    # A thread of its own is in the lab's network; this process is not.
    space = (connection.load(stack.name).namespace,)
    with ThreadPoolExecutor(1, initializer=network.enter, initargs=space) as lab:
        yield lambda conversation: lab.submit(have, conversation).result()
    end_key(stack, inventory, "clara")


def request(messages: list[dict[str, Any]], **more: Any) -> str:
    body = {"model": MODEL, "messages": messages, "max_tokens": 12, "temperature": 0, **more}
    return shlex.join(["-H", "Content-Type: application/json", "-d", json.dumps(body)])


def post(host: Host, port: int, messages: list[dict[str, Any]], **more: Any) -> tuple[int, str]:
    """HTTP status and text of one chat completion."""
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    answer = host.look(
        f"curl -sS --max-time 120 -w '\\n%{{http_code}}' {request(messages, **more)} {url}"
    )
    text, _, status = answer.out.rpartition("\n")
    return int(status), text


def test_the_real_vllm_becomes_hot(host):
    assert host.complete(ENGINE, MODEL)["usage"]["completion_tokens"] == 8
    assert host.get(f"http://127.0.0.1:{ENGINE}/version")["version"].startswith("0.32")


def test_the_engine_survives_the_operators_logout(stack, host):
    """With an ordinary account logind would remove the engine's semaphores now."""
    pid = host.show(UNIT, "MainPID")
    # Asking over SSH would be a login, so the host itself reports that logind let go of the user.
    report = f"{connection.load(stack.name).services['python_index']}nobody-is-logged-in/"
    logout_watch = f"while loginctl show-user spark; do sleep 0.2; done; curl -s {report}"
    host.root(f"systemd-run --quiet --collect sh -c {shlex.quote(logout_watch)}")
    until(
        lambda: any("nobody-is-logged-in" in request.path for request in stack.requests("web")),
        "spark1: logind has let go of the operator",
    )
    assert host.complete(ENGINE, MODEL)["usage"]["completion_tokens"] == 8
    assert host.show(UNIT, "MainPID") == pid
    assert host.show(UNIT, "NRestarts") == "0"


def test_the_running_engine_was_started_as_the_recipe_says(stack, host):
    pid = host.show(UNIT, "MainPID")
    argv = host.root(f"cat /proc/{pid}/cmdline").split("\0")[:-1]
    # The kernel puts the interpreter of the console script before its words.
    assert argv[2:4] == ["serve", "lab/tiny-qwen3-strict"]
    pin = lockfile.load(stack.lock).checkpoints["lab/tiny-qwen3-strict"]
    assert argv[argv.index("--revision") + 1] == pin.commit
    environment = host.root(f"cat /proc/{pid}/environ").split("\0")
    assert "HF_HUB_OFFLINE=1" in environment
    listing = host.root(f"nsenter --target {pid} --mount ls -A /etc/lockstep /run/lockstep")
    visible_files = ["models.json", "served-weights.json"]
    assert listing.split() == ["/etc/lockstep:", *visible_files, "/run/lockstep:"]
    listening = host.root(f"ss -Hltn 'sport = :{API} or sport = :{ENGINE}'").split()[3::5]
    assert sorted(listening) == [f"127.0.0.1:{API}", f"127.0.0.1:{ENGINE}"]


def test_the_engine_refuses_two_messages_of_one_role_and_its_listener_helps(host):
    status, text = post(host, ENGINE, TWO_IN_A_ROW)
    assert status == 400 and REFUSED in text
    status, text = post(host, API, TWO_IN_A_ROW)
    assert status == 200, text
    # Not only accepted: the engine was asked exactly what the rules say.
    by_gateway, by_engine = (
        json.loads(answer)["choices"][0]["message"]["content"]
        for answer in (text, post(host, ENGINE, MERGED)[1])
    )
    assert by_gateway == by_engine


def test_who_hangs_up_ends_the_generation(host):
    earlier_tokens = metric(host, "generation_tokens_total")
    # More than a machine that is busy with other things generates before it has noticed.
    more = {"n": 16, "temperature": 1, "max_tokens": 900}
    body = request(TWO_IN_A_ROW, stream=True, ignore_eos=True, **more)
    url = f"http://127.0.0.1:{API}/v1/chat/completions"
    # head leaves after the first bytes, and curl with it.
    host.look(f"curl -sSN {body} {url} | head -c 300 >/dev/null")
    until(lambda: metric(host, "num_requests_running") == 0, "no request is running")
    assert 0 < metric(host, "generation_tokens_total") - earlier_tokens < 16 * 900


def metric(host: Host, name: str) -> float:
    """The value of one of vLLM's metrics."""
    text = host.look(f"curl -sS http://127.0.0.1:{API}/metrics").out
    match = re.search(rf"^vllm:{name}{{.*}} (\S+)", text, re.MULTILINE)
    assert match, text[:500]
    return float(match[1])


def a_chat_whole_and_streamed(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"messages": ASKED, "max_tokens": 12, "temperature": 0}
    answer = client.chat.completions.create(model="strict", **asked)
    content = answer.choices[0].message.content
    assert content and answer.model == MODEL and answer.usage.completion_tokens == 12
    options = {"include_usage": True}
    *pieces, last = client.chat.completions.create(
        model="strict", stream=True, stream_options=options, **asked
    )
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == content
    assert last.usage.completion_tokens == 12


def a_tool_whole_and_streamed(client: openai.OpenAI) -> None:
    function = {"name": "look", "parameters": WHERE, "strict": True}
    asked: dict[str, Any] = {"messages": ASKED, "max_tokens": 64, "temperature": 0}
    asked["tools"] = [{"type": "function", "function": function}]
    asked["tool_choice"] = {"type": "function", "function": {"name": "look"}}
    (call,) = client.chat.completions.create(model="strict", **asked).choices[0].message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("look", {"city": "Rome"})
    pieces = client.chat.completions.create(model="strict", stream=True, **asked)
    calls = [call for piece in pieces for call in piece.choices[0].delta.tool_calls or ()]
    assert [call.function.name for call in calls if call.function.name] == ["look"]
    assert json.loads("".join(call.function.arguments or "" for call in calls)) == {"city": "Rome"}


def a_message_whole_streamed_and_counted(client: anthropic.Anthropic) -> None:
    asked: dict[str, Any] = {"model": "strict", "messages": ASKED}
    answer = client.messages.create(max_tokens=12, **asked)
    assert answer.content[0].text and answer.stop_reason == "max_tokens"
    with client.messages.stream(max_tokens=12, **asked) as stream:
        text, final = "".join(stream.text_stream), stream.get_final_message()
    assert text == final.content[0].text and final.usage.output_tokens == 12
    assert client.messages.count_tokens(**asked).input_tokens == answer.usage.input_tokens


def a_tool_of_a_message(client: anthropic.Anthropic) -> None:
    tool: Any = {"name": "look", "description": "Look.", "input_schema": WHERE, "strict": True}
    choice: Any = {"type": "tool", "name": "look"}
    message = client.messages.create(
        model="strict", messages=ASKED, max_tokens=64, tools=[tool], tool_choice=choice
    )
    (use,) = [block for block in message.content if block.type == "tool_use"]
    assert (use.name, use.input) == ("look", {"city": "Rome"})


OF_OPENAI = (a_chat_whole_and_streamed, a_tool_whole_and_streamed)
OF_ANTHROPIC = (a_message_whole_streamed_and_counted, a_tool_of_a_message)


@pytest.mark.parametrize("conversation", [*OF_OPENAI, *OF_ANTHROPIC])
def test_a_package_is_answered(in_lab, conversation):
    in_lab(conversation)


def test_a_switch_does_not_wait_for_the_clients_of_the_real_vllm(host):
    host.hold_streams(ENGINE, MODEL, 16)
    # vLLM may tell the streams that their engine is gone; who is still asking is told nothing.
    host.root(f"systemd-run --quiet --collect bash -c {shlex.quote(HALF_A_QUESTION)}")
    asking = f"ss -tnpH state established 'dport = :{ENGINE}' | grep -c '\"cat\"' || true"
    until(lambda: host.root(asking).strip() == "1", "spark1: a client has asked half a question")
    # As a wedge: nothing more comes of the engine's process. It does not see either that its main
    # process is killed.
    engine = host.root("pgrep -f ^VLLM::EngineCore").strip()
    host.root(f"kill -STOP {engine}")
    processes = host.root(f"pgrep -u $(systemctl show -p User --value {UNIT})").split()
    since = host.root("date +%s").strip()
    answer = host.switch("none")
    assert answer.code == 0, answer.text
    log = host.logs("lockstep end: ", f"--since=@{since}", f"_SYSTEMD_UNIT={UNIT}")
    waits, kill_at = (log.find(words) for words in ("Waiting for connections", "lockstep end: "))
    assert -1 < waits < kill_at, log
    assert (host.show(UNIT, "ActiveState"), host.show(UNIT, "Result")) == ("inactive", "success")
    assert engine in processes
    leftovers = host.root(f"ps -o pid= -p {','.join(processes)} || true; ls /dev/shm")
    assert leftovers == "", "memory is still taken"
