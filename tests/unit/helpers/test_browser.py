"""Pages in Chromium: what a page may not do fails the test that opened it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest
from browser import Chromium, browser, start_chromium
from local_server import LocalServer, Reply, serving

HTML = {"Content-Type": "text/html; charset=utf-8"}


@pytest.fixture(scope="module")
def started_once() -> Iterator[Chromium]:
    with start_chromium() as chromium:
        yield chromium


def page_server(body: str) -> AbstractContextManager[LocalServer]:
    head = "<!DOCTYPE html><title>x</title><meta name=viewport content=width=device-width>"
    return serving({"/": Reply((head + body).encode(), headers=HTML)})


def test_a_page_has_the_width_and_the_colours_that_were_asked_for(started_once: Chromium) -> None:
    style = "<style>@media (prefers-color-scheme: dark) {body {color: #111}}</style>"
    expression = "[innerWidth, getComputedStyle(document.body).color]"
    with page_server(style) as server, browser(chromium=started_once) as chromium:
        phone = chromium.page(server.url, 390, dark=True)
        assert phone.evaluate(expression) == [390, "rgb(17, 17, 17)"]
        assert chromium.page(server.url).evaluate(expression) == [1280, "rgb(0, 0, 0)"]


def test_what_no_page_may_do_fails_the_test(started_once: Chromium) -> None:
    faults = {
        "console.error('broken')": "console: broken",
        "await noSuchFunction()": "noSuchFunction is not defined",
        "await fetch('http://elsewhere.invalid/').catch(() => 0)": "http://elsewhere.invalid/",
        "new WebSocket('ws://elsewhere.invalid/')": "ws://elsewhere.invalid/",
        "await fetch('/absent')": "status of 404",
    }
    with pytest.raises(pytest.fail.Exception) as error, browser(chromium=started_once) as chromium:
        for script in faults:
            module = f"try {{{script}}} finally {{document.title = 'done'}}"
            with page_server(f"<script type=module>{module}</script>") as server:
                chromium.page(server.url).wait_for_function("document.title === 'done'")
    assert [fault for fault in faults.values() if fault not in str(error.value)] == []
