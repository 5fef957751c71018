"""The page of the real gateway in a real Chromium: whoever may switch does so from it."""

import contextlib
import json
import os
import re
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from a_model_host import UP
from a_probe import program
from a_prometheus import prometheus
from a_switching_spark import UNITS, SwitchingSpark
from browser import DESK, PHONE, Browser, browser, faults, picture, start_chromium
from gateway_process import KEYS, once, write_keys
from playwright.sync_api import Locator, Page, expect
from raw_engine import LIMIT_S

from lockstep.files.templating import render_template
from lockstep.onhost.gateway.configuration import GatewayConfiguration, ListenAddress, WebUiAddress
from lockstep.onhost.records import last_diff, switch_history

pytestmark = pytest.mark.slow

RECIPES = {
    "qwen": "qwen3.6-35b-a3b-prismaquant-dflash-k3",
    "mistral": "mistral-small-4-nvfp4-sglang-eagle",
    "spare": "qwen3.6-35b-a3b-autoround",
}
METRICS = 'vllm:num_requests_running{{m="q"}} {0}\nvllm:generation_tokens_total{{m="q"}} {1}\n'
HIDDEN = """(hidden) => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
expect.set_options(timeout=LIMIT_S * 1000)


class Spark(SwitchingSpark):
    """The host, with a gateway at a local and an open listener; mistral is hot."""

    def __init__(self, folder: Path, monkeypatch, history: str, port: int) -> None:
        super().__init__(folder, monkeypatch)
        self.folder, self.switch = folder, self.socket
        for name in UNITS:
            self.tell(name, recipe=RECIPES[name], engine="vllm", engine_url=self.engine.url)
        self.tell("mistral", evens=("same_role",))
        since = f"@{int(time.time()) - 11100}"
        self.systemd.unit(UNITS["mistral"], **UP, StateChangeTimestamp=since)
        # Of this process alone: any port of 127.0.0.1 may be taken by a connection.
        address = ".".join(map(str, (127, *os.getpid().to_bytes(3, "big"))))
        ports = {"local": port, "open": port + 1}
        self.listeners = {kind: f"http://{address}:{at}/" for kind, at in ports.items()}
        listeners = tuple(ListenAddress(kind, address, at) for kind, at in ports.items())
        webui = WebUiAddress(8080)
        gateway = GatewayConfiguration("spark1", listeners, prometheus=history, webui=webui)
        self.paths.gateway.write_text(json.dumps(asdict(gateway)))
        self.paths.gateway_page.write_text(render_template("page/gateway.html.j2"))
        self.engine.metrics = METRICS.format(3, 1000)
        write_keys(self.paths)

    def has_done_much(self) -> None:
        """A GPU, a disk, switches and a diff, as on a Spark that was in use for days."""
        words = "38.20, 2080, 61, 94, 0x0000000000000000"
        text = f'case "$*" in *temperature.gpu*) echo "{words}" ;; *) exit 1 ;; esac'
        program(self.systemd.folder / "bin", "nvidia-smi", text)
        self.paths.weights_list.write_text(json.dumps({"cache_dir": "/"}))
        for at, *fields in (
            (91000, 97, "anna", "qwen", 0, "qwen is hot, started in 97 s, 57.0 tok/s"),
            (15000, 212, "bob, by the gateway", "spare", 1, "the switch to spare FAILED"),
            (11100, 154, "anna", "mistral", 0, "mistral is hot, started in 154 s, 31.4 tok/s"),
        ):
            record = switch_history.SwitchRecord(time.time() - at, *fields)
            switch_history.add_switch_record(self.paths, record)
        difference = {"kind": "sysctl", "item": "vm.swappiness", "how": "deploy"}
        differences = [{"severity": "warning", **difference}]
        last_diff.answer_request({"differences": differences, "more": 0, "unknown": []}, self.paths)

    def hangs(self, name: str, **more) -> Path:
        """Have a model's start wait for a file."""
        gate = self.paths.root / "loaded"
        wait = f"until test -e {gate}; do sleep 0.05; done"
        self.systemd.unit(UNITS[name], on_start=["sh", "-c", wait], **more)
        return gate


@pytest.fixture(scope="module")
def started_once():
    """The Chromium of all tests here, each with sessions of its own."""
    with start_chromium() as chromium:
        yield chromium


@contextlib.contextmanager
def serving_page(folder: Path, patch: pytest.MonkeyPatch, port: int) -> Iterator[Spark]:
    with prometheus() as metrics_server:
        spark = Spark(folder, patch, metrics_server.url, port)
        with once(spark):
            yield spark
        spark.close()


@pytest.fixture
def spark(tmp_path, monkeypatch):
    """A host of the test's own, which it may change."""
    with serving_page(tmp_path, monkeypatch, 8090) as spark:
        yield spark


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    """The host of all tests that only look: nothing is switched there, and no key revoked."""
    folder = tmp_path_factory.mktemp("quiet")
    with pytest.MonkeyPatch.context() as patch, serving_page(folder, patch, 8092) as spark:
        yield spark


@pytest.fixture
def chromium(request, started_once):
    """Sessions that end before the host of the test, if it has one of its own."""
    if "spark" in request.fixturenames:
        request.getfixturevalue("spark")
    with browser(chromium=started_once) as sessions:
        yield sessions


def open_page(chromium: Browser, spark: Spark, width: int = PHONE, **more) -> Page:
    """The page at the local listener, with its first facts."""
    page = chromium.page(spark.listeners["local"], width, **more)
    expect(page.get_by_role("heading", name="spark1")).to_be_visible()
    return page


def reads(where: Locator, *texts: str | re.Pattern[str]) -> None:
    """Wait until a place has all of these texts."""
    for text in texts:
        expect(where).to_contain_text(text)


def button(where: Page | Locator, name: str) -> Locator:
    return where.get_by_role("button", name=name, exact=True)


def region(page: Page, name: str = "Switch") -> Locator:
    return page.get_by_role("region", name=name, exact=True)


def key_dialog(page: Page) -> Locator:
    return page.get_by_role("dialog", name="Key")


def enter(page: Page, key: str) -> None:
    """Enter a key in the page's own dialog."""
    key_dialog(page).get_by_label("Key").fill(key)
    page.keyboard.press("Enter")


def give_key(page: Page, role: str) -> None:
    """Give a person's key in the page's own dialog."""
    button(page, "Use a key").click()
    enter(page, KEYS[role])


def ask_model(page: Page, question: str) -> Locator:
    """Ask the hot model; returns the place of its answer."""
    page.get_by_role("textbox", name="Ask it something").fill(question)
    page.keyboard.press("Enter")
    return page.get_by_role("group", name="Its answer")


def switch(page: Page, model: str) -> Locator:
    """Ask for a switch, and confirm; returns the place of its phases."""
    button(page, f"Switch to {model}").click()
    button(sure(page, model), "Switch").click()
    return region(page)


def hot(page: Page) -> Locator:
    """The card of the hot model."""
    return region(page, "Running model")


def sure(page: Page, model: str) -> Locator:
    """The dialog that asks before a switch."""
    return page.get_by_role("dialog", name=f"Switch to {model}?")


def test_an_operator_cancels_a_switch_sees_one_fail_and_the_phases_of_one(spark, chromium):
    spark.has_done_much()
    page = open_page(chromium, spark)
    last_switch = region(page, "Last switches").get_by_role("listitem").first
    reads(hot(page), "mistral")
    give_key(page, "operate")
    expect(button(page, "boss (operate)")).to_be_visible()
    spark.hangs("qwen")
    now = switch(page, "qwen")
    reads(now, "starting qwen")
    now.get_by_role("button", name="Cancel").click()
    reads(now, "Cancelled. All is as before", "the switch to qwen was cancelled")
    reads(hot(page), "mistral")
    reads(last_switch, "cancelled")
    # It is no fault.
    expect(region(page, "Needs attention")).to_be_hidden()

    for name in ("qwen", "spare"):
        spark.systemd.unit(UNITS[name], start_ok=False, journal=["lockstep ready: engine died"])
    switch(page, "qwen")
    reads(now, "It failed. The model before is running again", "engine died")
    reads(hot(page), "mistral")
    picture(page, "page-failed")

    loading = "Loading safetensors checkpoint shards:  46% Completed | 6/13 [00:10<00:12]"
    gate = spark.hangs("qwen", journal=[loading])
    switch(page, "qwen")
    reads(now, "loading weights, file 6 of 13", re.compile(r"0:\d\d of about 1:37"))
    # One card: nothing says beside it that no model is hot.
    expect(hot(page)).to_be_hidden()
    assert faults(page) == []
    expect(now.locator("[aria-current=step]")).to_have_text("load")
    picture(page, "page-switching")
    gate.touch()
    reads(now, "Done", "qwen is hot, started in")
    reads(hot(page), "qwen")
    reads(last_switch, "boss, by the gateway")
    button(now, "Close").click()
    expect(now).to_be_hidden()
    assert spark.hot == ["qwen"]


def test_switching_asks_for_a_key_that_may_and_a_wrong_one_changes_nothing(quiet, chromium):
    page = open_page(chromium, quiet, refusals=(401,))
    button(page, "Switch to qwen").click()
    keys = key_dialog(page)
    reads(keys, "Switching takes a key of the role operate")
    assert faults(page) == []
    enter(page, KEYS["use"])
    reads(keys, "You are anna and may use models")
    enter(page, "lk-wrong")
    reads(keys, "The key was not taken")
    enter(page, KEYS["operate"])
    reads(sure(page, "qwen"), "If qwen does not start, its fallback spare")
    page.keyboard.press("Escape")
    boss = button(page, "boss (operate)")
    # Who has given up is not asked again.
    boss.click()
    button(key_dialog(page), "Close").click()
    expect(boss).to_be_visible()
    assert page.evaluate("Object.values(sessionStorage)") == [KEYS["operate"]]
    boss.click()
    enter(page, KEYS["use"])
    expect(button(page, "anna (use)")).to_be_visible()
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert quiet.hot == ["mistral"]


def delta(**fields: str) -> dict:
    return {"choices": [{"delta": fields}]}


def test_the_hot_model_answers_a_question_as_it_comes(spark, chromium):
    resume, requests = threading.Event(), []

    def chat(body):
        requests.append(body)

        def events():
            yield from (delta(reasoning_content="hm"), delta(content="<b>one"))
            resume.wait(LIMIT_S)
            yield {"choices": [{"delta": {"content": " two"}, "finish_reason": "stop"}]}
            yield {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 40}}

        return 200, events()

    spark.engine.chat, spark.engine.metrics = chat, METRICS.format(0, 1000)
    page = open_page(chromium, spark)
    reply = ask_model(page, "Count to two")
    expect(reply).to_have_text("<b>one")
    reads(hot(page), "1person now")
    assert faults(page) == []
    resume.set()
    expect(reply).to_have_text("<b>one two")
    reads(hot(page), re.compile(r"[1-9][\d.]*tok/s, last answer"))
    two = json.dumps({"model": "auto", "messages": [{"role": "user", "content": "a"}] * 2})
    with urllib.request.urlopen(f"{spark.listeners['local']}v1/chat/completions", two.encode()):
        reads(hot(page), "Evened out for its template: same role 1")
    assert requests[0]["messages"] == [{"role": "user", "content": "Count to two"}]
    assert requests[0]["stream"] is True
    # One that does not end is stopped.
    resume.clear()
    button(page, "Ask").click()
    reads(reply, "<b>one")
    button(page, "Stop").click()
    reads(reply, "Stopped.")
    expect(button(page, "Ask")).to_be_visible()
    resume.set()


def test_a_key_that_is_revoked_refuses_a_switch_and_a_question_asks_for_another(spark, chromium):
    page = open_page(chromium, spark, refusals=(401,))
    give_key(page, "operate")
    expect(button(page, "boss (operate)")).to_be_visible()

    def revoke_key(route) -> None:
        write_keys(spark.paths, ("use",))
        route.continue_()

    # Not before that: the page asks for its figures, too, and then wants another key.
    page.route("**/switch", revoke_key)
    now = switch(page, "qwen")
    reads(now, "Refused", "a key is needed")
    spark.engine.chat = lambda _: (200, iter([delta(content="hello")]))
    reply = ask_model(page, "Who are you?")
    reads(key_dialog(page), "Asking takes a key.")
    enter(page, KEYS["use"])
    expect(reply).to_have_text("hello")
    assert spark.hot == ["mistral"]


def test_from_another_machine_the_page_asks_for_a_key_and_forgets_it_when_told(quiet, chromium):
    page = chromium.page(quiet.listeners["open"], PHONE, refusals=(401,))
    ask = page.get_by_role("heading", name="This Spark asks for a key")
    expect(ask).to_be_visible()
    assert faults(page) == []
    page.get_by_role("textbox", name="Key").fill("lk-wrong")
    button(page, "Open").click()
    expect(page.get_by_text("The key was not taken")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0
    page.get_by_role("textbox", name="Key").fill(KEYS["use"])
    page.keyboard.press("Enter")
    reads(hot(page), "mistral")
    storage = "[Object.values(sessionStorage), localStorage.length, document.cookie]"
    assert page.evaluate(storage) == [[KEYS["use"]], 0, ""]
    assert KEYS["use"] not in page.content() and KEYS["use"] not in page.url
    button(page, "anna (use)").click()
    button(page, "Forget the key").click()
    expect(ask).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0


@pytest.mark.parametrize(("width", "dark"), [(PHONE, True), (DESK, False)])
def test_everything_can_be_read_and_reached(spark, chromium, width, dark):
    spark.has_done_much()
    spark.systemd.unit(UNITS["spare"], ActiveState="failed", SubState="failed", Result="timeout")
    page = open_page(chromium, spark, width, dark=dark)
    give_key(page, "operate")
    to_qwen = button(page, "Switch to qwen")
    expect(to_qwen).to_be_visible()
    for words in ("61 °C", "starts in about 2 min", "Its fallback spare: failed, timeout"):
        expect(page.get_by_text(words)).to_be_visible()
    assert page.get_by_role("button", name="Switch to spare").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert faults(page) == []
    spark.engine.metrics = METRICS.format(3, 1040)
    reads(hot(page), re.compile(r"[1-9]\d*(\.\d)?tok/s"))
    picture(page, f"page-{width}")
    to_qwen.focus()
    page.keyboard.press("Enter")
    dialog = sure(page, "qwen")
    reads(dialog, "mistral is stopped first. 3 requests are under way")
    expect(button(dialog, "Leave it")).to_be_focused()
    assert faults(page) == []
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(to_qwen).to_be_focused()
    assert spark.hot == ["mistral"]


def test_the_page_is_live_but_behind_another_tab(spark, chromium):
    page = open_page(chromium, spark)
    live = page.get_by_text("live", exact=True)
    expect(live).to_be_visible()
    spark.systemd.unit(UNITS["mistral"])
    reads(hot(page), "No model")
    assert page.title() == "no model · spark1"
    page.evaluate(HIDDEN, True)
    expect(page.get_by_text("asleep", exact=True)).to_be_visible()
    assert page.evaluate("stream.signal.aborted")
    page.evaluate(HIDDEN, False)
    expect(live).to_be_visible()


PAINT_PEERS = """() => {
  stream.abort();
  facts.peers = { spark2: { ...facts, host: "spark2" }, spark3: { fault: "no answer" } };
  paint();
}"""


def test_the_last_hour_the_peers_and_words_of_others_are_shown_as_words(quiet, chromium):
    markup = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    record = switch_history.SwitchRecord(time.time(), 1.0, markup, markup, 1, markup)
    switch_history.add_switch_record(quiet.paths, record)
    page = open_page(chromium, quiet)
    reads(region(page, "Last switches"), markup)
    assert page.locator("main img, main script").count() == 0
    hour = region(page, "The last hour")
    reads(hour, "Memory available40.0 to 100.0 GiB", "GPU temperature45 to 75 °C")
    # No model was hot in that hour.
    expect(hour).not_to_contain_text("tok/s")
    curve = hour.get_by_role("img", name="Memory available in the last hour").locator("path")
    # A gap, where the host was off.
    assert curve.get_attribute("d").count("M") == 2
    peers = region(page, "Other Sparks")
    expect(peers).to_be_hidden()
    page.evaluate(PAINT_PEERS)
    first, second = peers.get_by_role("listitem").all()
    reads(first, "spark2mistral", "3 requests, 100.0 GiB available")
    reads(second, "spark3silentno answer")
    assert faults(page) == []
    page.evaluate("hour({ fault: 'Prometheus does not answer' })")
    expect(hour).to_be_hidden()


def test_a_gateway_that_is_killed_in_a_switch_ends_its_display_alone(spark, chromium):
    gate = spark.hangs("qwen")
    page = open_page(chromium, spark)
    give_key(page, "operate")
    now = switch(page, "qwen")
    reads(now, "starting qwen")
    spark.process.kill()
    spark.process.wait()
    reads(now, "The switch goes on")
    no_answer = page.get_by_text("No answer from spark1 since")
    expect(no_answer).to_be_visible()
    expect(button(page, "Switch to qwen")).to_be_disabled()
    assert faults(page) == []
    with once(spark):
        reads(now, "boss, by the gateway is switching")
        expect(no_answer).to_be_hidden()
        gate.touch()
        reads(hot(page), "qwen")
        page.close()
    # Chromium itself says that nobody answered.
    chromium.faults[:] = [fault for fault in chromium.faults if "net::ERR_" not in fault]
    assert spark.hot == ["qwen"]
