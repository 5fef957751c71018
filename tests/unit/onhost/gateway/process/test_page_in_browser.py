"""The page of the real gateway in a real Chromium: whoever may switch does so from it."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import socket
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from a_probe import program
from a_prometheus import prometheus
from a_switching_spark import UNITS, SwitchingSpark
from browser import DESK, PHONE, Browser, Chromium, browser, faults, picture, start_chromium
from fork import Fork
from gateway_process import KEYS, running, write_keys
from local_server import Reply, serving
from playwright.sync_api import Locator, Page, expect

from lockstep.files.templating import render_template
from lockstep.onhost.core import errors
from lockstep.onhost.gateway import server, switch_client
from lockstep.onhost.gateway.configuration import (
    GatewayConfiguration,
    ListenAddress,
    WebUiAddress,
)
from lockstep.onhost.records import last_diff, switch_history

pytestmark = pytest.mark.slow

LIMIT_S = 180
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

    def __init__(self, folder: Path, monkeypatch, history: str | None, port: int = 8090) -> None:
        super().__init__(folder, monkeypatch)
        for name in UNITS:
            self.tell(name, recipe=RECIPES[name], engine="vllm", engine_url=self.engine.url)
        self.tell("mistral", evens=("same_role",))
        since = f"@{int(time.time()) - 11100}"
        self.systemd.unit(
            UNITS["mistral"], ActiveState="active", SubState="running", StateChangeTimestamp=since
        )
        # Of this process alone: any port of 127.0.0.1 may be taken by a connection.
        address = ".".join(map(str, (127, *os.getpid().to_bytes(3, "big"))))
        listeners = (
            ListenAddress("local", address, port),
            ListenAddress("open", address, port + 1),
        )
        self.listeners = {
            listener.kind: f"http://{listener.address}:{listener.port}/" for listener in listeners
        }
        self.paths.gateway.write_text(
            json.dumps(
                asdict(
                    GatewayConfiguration(
                        *("spark1", listeners),
                        prometheus=history,
                        webui=WebUiAddress(8080),
                    )
                )
            )
        )
        self.paths.gateway_page.write_text(render_template("page/gateway.html.j2"))
        self.engine.metrics = METRICS.format(3, 1000)
        write_keys(self.paths)

    @contextlib.contextmanager
    def gateway(self) -> Iterator[None]:
        """The program, ready."""
        place = tempfile.mktemp(dir=self.paths.root.parent)

        def main() -> int:
            switch_client.request_switch = functools.partial(
                switch_client.request_switch, path=self.socket
            )
            usage = self.paths.root / "usage.json"
            return errors.run_main("lockstep gateway", lambda: server.main([], self.paths, usage))

        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.bind(place)
            notify.settimeout(LIMIT_S)
            with Fork(main, env={**os.environ, "NOTIFY_SOCKET": place}) as self.process:
                try:
                    assert notify.recv(64) == b"READY=1"
                    yield
                finally:
                    self.process.kill()

    def has_done_much(self) -> None:
        """A GPU, a disk, switches and a diff, as on a Spark that was in use for days."""
        query = "*power.draw,clocks.sm,temperature.gpu*"
        words = "38.20, 2080, 61, 94, 0x0000000000000000"
        text = f'case "$*" in {query}) echo "{words}" ;; *) exit 1 ;; esac'
        program(self.systemd.folder / "bin", "nvidia-smi", text)
        self.paths.weights_list.write_text(json.dumps({"cache_dir": "/"}))
        now = time.time()
        for at, took, person, model, code, message in (
            (91000, 97, "anna", "qwen", 0, "qwen is hot, started in 97 s, 57.0 tok/s"),
            (
                15000,
                212,
                "bob, by the gateway",
                "spare",
                1,
                "the switch to spare FAILED; qwen is hot again",
            ),
            (11100, 154, "anna", "mistral", 0, "mistral is hot, started in 154 s, 31.4 tok/s"),
        ):
            switch_history.add_switch_record(
                self.paths,
                switch_history.SwitchRecord(now - at, took, person, model, code, message),
            )
        differences = [
            {"severity": "warning", "kind": "sysctl", "item": "vm.swappiness", "how": "deploy"},
            {"severity": "note", "kind": "apt package", "item": "htop", "how": "by hand"},
        ]
        last_diff.answer_request({"differences": differences, "more": 0, "unknown": []}, self.paths)


@pytest.fixture(scope="module")
def started_once() -> Iterator[Chromium]:
    """The Chromium of all tests here, each with sessions of its own."""
    with start_chromium() as chromium:
        yield chromium


@pytest.fixture
def spark(tmp_path, monkeypatch) -> Iterator[Spark]:
    """A host of the test's own, which it may change."""
    with prometheus() as metrics_server:
        spark = Spark(tmp_path, monkeypatch, metrics_server.url)
        with spark.gateway():
            yield spark
        spark.close()


@pytest.fixture(scope="module")
def quiet(tmp_path_factory) -> Iterator[Spark]:
    """The host of all tests that only look: nothing is switched there, and no key revoked."""
    with pytest.MonkeyPatch.context() as patch, prometheus() as metrics_server:
        spark = Spark(tmp_path_factory.mktemp("quiet"), patch, metrics_server.url, port=8092)
        with spark.gateway():
            yield spark
        spark.close()


def open_page(chromium: Browser, spark: Spark, width: int = PHONE, **more) -> Page:
    """The page at the local listener, with its first facts."""
    page = chromium.page(spark.listeners["local"], width, **more)
    expect(page.get_by_role("heading", name="spark1")).to_be_visible()
    return page


def give_key(page: Page, role: str) -> None:
    """Give a person's key in the page's own dialog."""
    page.get_by_role("button", name="Use a key").click()
    page.get_by_role("dialog").get_by_label("Key").fill(KEYS[role])
    page.get_by_role("button", name="Use", exact=True).click()


def switch(page: Page, model: str) -> None:
    """Ask for a switch, and confirm."""
    page.get_by_role("button", name=f"Switch to {model}", exact=True).click()
    sure(page, model).get_by_role("button", name="Switch").click()


def hot(page: Page) -> Locator:
    """The card of the hot model."""
    return page.get_by_role("region", name="Running model")


def sure(page: Page, model: str) -> Locator:
    """The dialog that asks before a switch."""
    return page.get_by_role("dialog", name=f"Switch to {model}?")


def test_an_operator_switches_from_the_page_and_sees_its_phases(started_once, spark):
    spark.has_done_much()
    with browser(chromium=started_once) as chromium:
        page = open_page(chromium, spark)
        expect(hot(page)).to_contain_text("mistral")
        give_key(page, "operate")
        expect(page.get_by_role("button", name="boss (operate)")).to_be_visible()
        gate = spark.paths.root / "loaded"
        loading = "Loading safetensors checkpoint shards:  46% Completed | 6/13 [00:10<00:12]"
        wait = f"until test -e {gate}; do sleep 0.05; done"
        spark.systemd.unit(UNITS["qwen"], journal=[loading], on_start=["sh", "-c", wait])
        switch(page, "qwen")
        now = page.get_by_role("region", name="Switch", exact=True)
        expect(now).to_contain_text("loading weights, file 6 of 13")
        expect(now).to_contain_text(re.compile(r"0:\d\d of about 1:37"))
        expect(now.get_by_role("button", name="Cancel, back to mistral")).to_be_visible()
        # One card: nothing says beside it that no model is hot.
        expect(hot(page)).to_be_hidden()
        assert faults(page) == []
        expect(now.get_by_role("listitem").and_(page.locator("[aria-current=step]"))).to_have_text(
            "load"
        )
        picture(page, "page-switching")
        gate.touch()
        expect(now).to_contain_text("Done")
        expect(now).to_contain_text("qwen is hot, started in")
        expect(hot(page)).to_contain_text("qwen")
        first = page.get_by_role("region", name="Last switches").get_by_role("listitem").first
        expect(first).to_contain_text("boss, by the gateway")
        now.get_by_role("button", name="Close").click()
        expect(now).to_be_hidden()
    assert spark.hot == ["qwen"]


def test_what_came_back_after_a_failed_switch_is_said_with_the_reason(started_once, spark):
    for name in ("qwen", "spare"):
        spark.systemd.unit(UNITS[name], start_ok=False, journal=["lockstep ready: engine died"])
    with browser(chromium=started_once) as chromium:
        page = open_page(chromium, spark)
        give_key(page, "operate")
        switch(page, "qwen")
        now = page.get_by_role("region", name="Switch", exact=True)
        expect(now).to_contain_text("It failed. The model before is running again")
        expect(now).to_contain_text("engine died")
        expect(now).to_contain_text("mistral is hot again")
        expect(hot(page)).to_contain_text("mistral")
        picture(page, "page-failed")


def test_an_operator_cancels_a_start_that_hangs_and_what_was_hot_is_back(started_once, spark):
    spark.systemd.unit(UNITS["qwen"], on_start=["sleep", "600"])
    with browser(chromium=started_once) as chromium:
        page = open_page(chromium, spark, DESK)
        give_key(page, "operate")
        switch(page, "qwen")
        now = page.get_by_role("region", name="Switch", exact=True)
        expect(now).to_contain_text("starting qwen")
        assert faults(page) == []
        now.get_by_role("button", name="Cancel").click()
        expect(now).to_contain_text("Cancelled. All is as before")
        expect(now).to_contain_text("the switch to qwen was cancelled; mistral is hot again")
        expect(hot(page)).to_contain_text("mistral")
        first = page.get_by_role("region", name="Last switches").get_by_role("listitem").first
        expect(first).to_contain_text("cancelled")
        # It is no fault.
        expect(page.get_by_role("region", name="Needs attention")).to_be_hidden()
    assert spark.hot == ["mistral"]


def test_a_switch_asked_for_before_its_key_is_taken_goes_on_with_it(started_once, quiet):
    with browser(chromium=started_once) as chromium:
        page = open_page(chromium, quiet)
        to_qwen = page.get_by_role("button", name="Switch to qwen", exact=True).element_handle()
        page.get_by_role("button", name="Use a key").click()
        keys = page.get_by_role("dialog", name="Key")
        keys.get_by_label("Key").fill(KEYS["operate"])
        use = keys.get_by_role("button", name="Use", exact=True).element_handle()
        # Before any answer can come.
        page.evaluate("([use, to]) => { use.click(); to.click(); }", [use, to_qwen])
        expect(sure(page, "qwen")).to_be_visible()
        expect(keys).to_be_hidden()


def test_switching_asks_for_a_key_that_may_and_a_wrong_one_changes_nothing(started_once, quiet):
    with browser(chromium=started_once) as chromium:
        page = open_page(chromium, quiet, refusals=(401,))
        page.get_by_role("button", name="Switch to qwen", exact=True).click()
        keys = page.get_by_role("dialog", name="Key")
        expect(keys).to_contain_text("Switching takes a key of the role operate")
        assert faults(page) == []
        keys.get_by_label("Key").fill(KEYS["use"])
        page.keyboard.press("Enter")
        expect(keys).to_contain_text("You are anna and may use models")
        keys.get_by_label("Key").fill("lk-wrong")
        page.keyboard.press("Enter")
        expect(keys).to_contain_text("The key was not taken")
        keys.get_by_label("Key").fill(KEYS["operate"])
        page.keyboard.press("Enter")
        expect(sure(page, "qwen")).to_contain_text("If qwen does not start, its fallback spare")
        page.keyboard.press("Escape")
        boss = page.get_by_role("button", name="boss (operate)")
        boss.click()
        keys.get_by_label("Key").fill("wrong")
        keys.get_by_role("button", name="Use", exact=True).click()
        expect(keys).to_contain_text("The key was not taken")
        keys.get_by_role("button", name="Close").click()
        expect(boss).to_be_visible()
        assert page.evaluate("Object.values(sessionStorage)") == [KEYS["operate"]]
        # Who has given up is not asked again.
        boss.click()
        keys.get_by_label("Key").fill(KEYS["use"])
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="anna (use)")).to_be_visible()
        expect(page.get_by_role("dialog")).to_be_hidden()
    assert quiet.hot == ["mistral"]


def test_the_hot_model_answers_a_question_as_it_comes(started_once, spark):
    resume, requests = threading.Event(), []

    def chat(body):
        requests.append(body)

        def events():
            yield {"choices": [{"delta": {"reasoning_content": "hm"}}]}
            yield {"choices": [{"delta": {"content": "<b>one"}}]}
            resume.wait(LIMIT_S)
            yield {"choices": [{"delta": {"content": " two"}, "finish_reason": "stop"}]}
            yield {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 40}}

        return 200, events()

    spark.engine.chat, spark.engine.metrics = chat, METRICS.format(0, 1000)
    with browser(chromium=started_once) as chromium:
        page = open_page(chromium, spark)
        page.get_by_role("textbox", name="Ask it something").fill("Count to two")
        page.keyboard.press("Enter")
        reply = page.get_by_role("group", name="Its answer")
        expect(reply).to_have_text("<b>one")
        expect(hot(page)).to_contain_text("1person now")
        assert faults(page) == []
        resume.set()
        expect(reply).to_have_text("<b>one two")
        expect(hot(page)).to_contain_text(re.compile(r"[1-9][\d.]*tok/s, last answer"))
        two = json.dumps({"model": "auto", "messages": [{"role": "user", "content": "a"}] * 2})
        with urllib.request.urlopen(f"{spark.listeners['local']}v1/chat/completions", two.encode()):
            expect(hot(page)).to_contain_text("Evened out for its template: same role 1")
        assert (requests[0]["messages"], requests[0]["stream"]) == (
            [{"role": "user", "content": "Count to two"}],
            True,
        )
        # One that does not end is stopped.
        resume.clear()
        page.get_by_role("button", name="Ask", exact=True).click()
        expect(reply).to_contain_text("<b>one")
        page.get_by_role("button", name="Stop", exact=True).click()
        expect(reply).to_contain_text("Stopped.")
        expect(page.get_by_role("button", name="Ask", exact=True)).to_be_visible()
        resume.set()


def test_a_key_that_is_revoked_meanwhile_refuses_a_switch_and_a_question_asks_for_another(
    started_once, spark
):
    with browser(chromium=started_once) as chromium:
        page = open_page(chromium, spark, refusals=(401,))
        give_key(page, "operate")
        expect(page.get_by_role("button", name="boss (operate)")).to_be_visible()

        def revoke_key(route) -> None:
            write_keys(spark.paths, ("use",))
            route.continue_()

        # Not before that: the page asks for its figures, too, and then wants another key.
        page.route("**/switch", revoke_key)
        switch(page, "qwen")
        switch_region = page.get_by_role("region", name="Switch", exact=True)
        expect(switch_region).to_contain_text("Refused")
        expect(switch_region).to_contain_text("a key is needed")
        spark.engine.chat = lambda _: (
            200,
            iter([{"choices": [{"delta": {"content": "hello"}}]}]),
        )
        page.get_by_role("textbox", name="Ask it something").fill("Who are you?")
        page.keyboard.press("Enter")
        keys = page.get_by_role("dialog", name="Key")
        expect(keys).to_contain_text("Asking takes a key.")
        keys.get_by_label("Key").fill(KEYS["use"])
        page.keyboard.press("Enter")
        expect(page.get_by_role("group", name="Its answer")).to_have_text("hello")
    assert spark.hot == ["mistral"]


def test_address_and_names_can_be_copied_and_open_webui_is_linked(started_once, quiet):
    quiet.systemd.unit("open-webui.service", ActiveState="active", SubState="running")
    with browser(chromium=started_once) as chromium:
        page = open_page(chromium, quiet)
        region = page.get_by_role("region", name="Use it elsewhere")
        prompt = page.get_by_role("textbox", name="Ask it something")
        address = f"{quiet.listeners['local']}v1"
        for name, text in (("the address", address), ("auto", "auto"), ("qwen", "qwen")):
            region.get_by_role("button", name=f"Copy {name}", exact=True).click()
            # Who takes the focus before that takes the text to be copied away.
            expect(page.locator("#told")).to_have_text(f"{text} is copied")
            prompt.fill("")
            page.keyboard.press("Control+V")
            expect(prompt).to_have_value(text)
        # A plain address of another machine has no clipboard of this kind.
        page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
        region.get_by_role("button", name="Copy mistral", exact=True).click()
        expect(page.locator("#told")).to_have_text("mistral is copied")
        prompt.fill("")
        page.keyboard.press("Control+V")
        expect(prompt).to_have_value("mistral")
        # A fallback answers for its model, and has no name of its own here.
        assert region.get_by_role("button", name="Copy spare").count() == 0
        # At this address it does not listen.
        expect(region).to_contain_text("Open WebUI answers on the Spark itself, at port 8080.")
        page.evaluate("stream.abort(); facts.webui_at.loopback = false; paint();")
        link = region.get_by_role("link", name="Open WebUI")
        assert link.get_attribute("href") == re.sub(r":\d+/", ":8080/", quiet.listeners["local"])


def test_from_another_machine_the_page_asks_for_a_key_and_forgets_it_when_told(started_once, quiet):
    with browser(chromium=started_once) as chromium:
        page = chromium.page(quiet.listeners["open"], PHONE, refusals=(401,))
        ask = page.get_by_role("heading", name="This Spark asks for a key")
        expect(ask).to_be_visible()
        assert faults(page) == []
        page.get_by_role("textbox", name="Key").fill("lk-wrong")
        page.get_by_role("button", name="Open").click()
        expect(page.get_by_text("The key was not taken")).to_be_visible()
        assert page.evaluate("sessionStorage.length") == 0
        page.get_by_role("textbox", name="Key").fill(KEYS["use"])
        page.keyboard.press("Enter")
        expect(hot(page)).to_contain_text("mistral")
        storage = page.evaluate(
            "[Object.values(sessionStorage), localStorage.length, document.cookie]"
        )
        assert storage == [[KEYS["use"]], 0, ""]
        assert KEYS["use"] not in page.content() and KEYS["use"] not in page.url
        page.get_by_role("button", name="anna (use)").click()
        page.get_by_role("button", name="Forget the key").click()
        expect(ask).to_be_visible()
        assert page.evaluate("sessionStorage.length") == 0


@pytest.mark.parametrize(
    ("width", "dark"), [(PHONE, True), (DESK, False)], ids=["phone, dark", "desk, light"]
)
def test_everything_can_be_read_and_reached(started_once, spark, width, dark):
    spark.has_done_much()
    spark.systemd.unit(UNITS["spare"], ActiveState="failed", SubState="failed", Result="timeout")
    with browser(chromium=started_once) as chromium:
        page = open_page(chromium, spark, width, dark=dark)
        give_key(page, "operate")
        expect(page.get_by_role("button", name="Switch to qwen", exact=True)).to_be_visible()
        expect(page.get_by_text("61 °C")).to_be_visible()
        expect(page.get_by_text("starts in about 2 min")).to_be_visible()
        expect(page.get_by_text("Its fallback spare: failed, timeout")).to_be_visible()
        assert page.get_by_role("button", name="Switch to spare").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert faults(page) == []
        spark.engine.metrics = METRICS.format(3, 1040)
        expect(hot(page)).to_contain_text(re.compile(r"[1-9]\d*(\.\d)?tok/s"))
        picture(page, f"page-{width}")
        page.get_by_role("button", name="Switch to qwen", exact=True).focus()
        page.keyboard.press("Enter")
        dialog = sure(page, "qwen")
        expect(dialog).to_contain_text("mistral is stopped first. 3 requests are under way")
        expect(dialog.get_by_role("button", name="Leave it")).to_be_focused()
        assert faults(page) == []
        page.keyboard.press("Escape")
        expect(dialog).to_be_hidden()
        expect(page.get_by_role("button", name="Switch to qwen", exact=True)).to_be_focused()
    assert spark.hot == ["mistral"]


def test_the_page_is_live_and_says_when_it_is_not(started_once, tmp_path, monkeypatch):
    spark = Spark(tmp_path, monkeypatch, None)
    with spark.gateway(), browser(chromium=started_once) as chromium:
        page = open_page(chromium, spark)
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        spark.systemd.unit(UNITS["mistral"])
        expect(hot(page)).to_contain_text("No model")
        assert page.title() == "no model · spark1"
        spark.systemd.unit(UNITS["qwen"], ActiveState="active", SubState="running")
        expect(hot(page)).to_contain_text("qwen")
        # Another tab is in front of it.
        page.evaluate(HIDDEN, True)
        expect(page.get_by_text("asleep", exact=True)).to_be_visible()
        assert page.evaluate("stream.signal.aborted")
        page.evaluate(HIDDEN, False)
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        # Nobody keeps the last hour here: none is shown, and nobody is asked for it again.
        page.wait_for_function("!kept")
        expect(page.get_by_role("region", name="The last hour")).to_be_hidden()
    spark.close()


def test_the_last_hour_is_drawn_where_prometheus_keeps_it(started_once, quiet):
    with browser(chromium=started_once) as chromium:
        page = open_page(chromium, quiet)
        region = page.get_by_role("region", name="The last hour")
        expect(region).to_contain_text("Memory available40.0 to 100.0 GiB")
        expect(region).to_contain_text("GPU temperature45 to 75 °C")
        # No model was hot in that hour.
        expect(region).not_to_contain_text("tok/s")
        curve = region.get_by_role("img", name="Memory available in the last hour").locator("path")
        # A gap, where the host was off.
        assert curve.get_attribute("d").count("M") == 2
        assert faults(page) == []
        page.evaluate("hour({ fault: 'Prometheus does not answer' })")
        expect(region).to_be_hidden()


def test_peers_are_shown_and_a_silent_one_is_said(started_once, quiet):
    paint_peers = "(peers) => { stream.abort(); facts.peers = peers(facts); paint(); }"
    peers = "(facts) => ({ spark2: { ...facts, host: 'spark2' }, spark3: { fault: 'no answer' } })"
    with browser(chromium=started_once) as chromium:
        page = open_page(chromium, quiet)
        expect(hot(page)).to_contain_text("mistral")
        region = page.get_by_role("region", name="Other Sparks")
        expect(region).to_be_hidden()
        page.evaluate(f"({paint_peers})({peers})")
        first, second = region.get_by_role("listitem").all()
        expect(first).to_contain_text("spark2mistral")
        expect(first).to_contain_text("3 requests, 100.0 GiB available")
        expect(second).to_contain_text("spark3silentno answer")
        assert faults(page) == []


def test_words_of_others_are_words_and_no_page(started_once, quiet):
    markup = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    switch_history.add_switch_record(
        quiet.paths, switch_history.SwitchRecord(time.time(), 1.0, markup, markup, 1, markup)
    )
    with browser(chromium=started_once) as chromium:
        page = open_page(chromium, quiet)
        expect(page.get_by_role("region", name="Last switches")).to_contain_text(markup)
        assert page.locator("main img, main script").count() == 0


def test_a_gateway_that_is_killed_in_a_switch_ends_its_display_alone(started_once, spark):
    gate = spark.paths.root / "loaded"
    wait = f"until test -e {gate}; do sleep 0.05; done"
    spark.systemd.unit(UNITS["qwen"], on_start=["sh", "-c", wait])
    with browser(chromium=started_once) as chromium:
        page = open_page(chromium, spark)
        give_key(page, "operate")
        switch(page, "qwen")
        now = page.get_by_role("region", name="Switch", exact=True)
        expect(now).to_contain_text("starting qwen")
        spark.process.kill()
        spark.process.wait()
        expect(now).to_contain_text("The switch goes on")
        expect(page.get_by_text("No answer from spark1 since")).to_be_visible()
        expect(page.get_by_role("button", name="Switch to qwen", exact=True)).to_be_disabled()
        assert faults(page) == []
        with spark.gateway():
            expect(now).to_contain_text("boss, by the gateway is switching")
            expect(page.get_by_text("No answer from spark1 since")).to_be_hidden()
            gate.touch()
            expect(hot(page)).to_contain_text("qwen")
            expect(page.get_by_text("live", exact=True)).to_be_visible()
            page.close()
        # Chromium itself says that nobody answered.
        chromium.faults[:] = [fault for fault in chromium.faults if "net::ERR_" not in fault]
    assert spark.hot == ["qwen"]


ASKED = """([url, key]) => fetch(`${url}/v1/models`, { headers: { "x-api-key": key } })
  .then((answer) => answer.status, (fault) => fault.name)"""


def test_a_browser_lets_pages_of_listed_origins_ask_and_no_others(started_once, tmp_path):
    blank, outcomes = Reply(b"<!doctype html>", headers={"Content-Type": "text/html"}), []
    with contextlib.ExitStack() as stack:
        listed_site, other_site = (stack.enter_context(serving({"/": blank})) for _ in range(2))
        listener = stack.enter_context(running(tmp_path, origins=(listed_site.url,))).listener(
            "local"
        )
        for site, key in (
            (listed_site, KEYS["use"]),
            (listed_site, "wrong"),
            (other_site, KEYS["use"]),
        ):
            page = started_once.new_page()
            page.goto(site.url)
            outcomes.append(
                page.evaluate(ASKED, [f"http://{listener.address}:{listener.port}", key])
            )
            page.close()
    assert outcomes == [200, 403, "TypeError"]
