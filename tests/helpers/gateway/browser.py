"""Pages in a real Chromium, the distribution's, driven by Playwright."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import BrowserContext, ConsoleMessage, Page, Request, sync_playwright

_TALLEST = 1100  # Of a picture, CSS pixels.
_PACKAGE = "chromium-headless-shell"
#: Widths of a phone and of a desk, CSS pixels.
PHONE, DESK = 390, 1280
_HERE = Path(__file__).parent
_PICTURES = Path(__file__).parents[3] / "docs" / "images"
#: How Chromium itself reports an answer of 400 and more; a script did not write it.
_ANSWERED = "Failed to load resource: the server responded with a status of "


class Browser:
    """Sessions in a Chromium; `faults` is what their pages did that no page may do."""

    def __init__(self, chromium: Chromium) -> None:
        self._chromium = chromium
        self._sessions: list[BrowserContext] = []
        self.faults: list[str] = []

    def page(
        self, url: str, width: int = 1280, *, dark: bool = False, refusals: tuple[int, ...] = ()
    ) -> Page:
        """A page at `url`, in a session of its own, `width` CSS pixels wide.

        What counts as a fault: an error on its console, an exception in its script, and a request
        to another origin, which is not sent. `refusals` are the HTTP status codes of 400 and more
        that the test wants to meet.
        """
        scheme = "dark" if dark else "light"
        height = 844 if width < 600 else 800
        context = self._chromium.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme
        )
        self._sessions.append(context)
        page = context.new_page()
        page.on("console", lambda message: self._said(message, refusals))
        page.on("pageerror", lambda error: self.faults.append(f"exception: {error}"))
        page.on("websocket", lambda socket: self._asked(socket.url, url))
        page.route(
            lambda other: _origin(other) != _origin(url),
            lambda route, request: (self._elsewhere(request), route.abort())[0],
        )
        page.goto(url)
        return page

    def close(self) -> None:
        """End the sessions."""
        for context in self._sessions:
            context.close()

    def _said(self, message: ConsoleMessage, refusals: tuple[int, ...]) -> None:
        wanted = any(message.text.startswith(f"{_ANSWERED}{code} ") for code in refusals)
        if message.type == "error" and not wanted:
            place = message.location
            self.faults.append(f"console: {message.text} ({place['url']}:{place['lineNumber']})")

    def _asked(self, other: str, url: str) -> None:
        if _origin(other) != _origin(url).replace("http", "ws", 1):
            self.faults.append(f"request to another origin: {other}")

    def _elsewhere(self, request: Request) -> None:
        self.faults.append(f"request to another origin: {request.url}")


@contextlib.contextmanager
def started(namespace: Path | None = None) -> Iterator[Chromium]:
    """A Chromium for `browser`.

    One at a time in a thread, and no `asyncio.run` in the block: Playwright's own loop runs there.

    Args:
        namespace: The network namespace that it runs in; None for this process's.
    """
    program = shutil.which(_PACKAGE, path="/usr/bin:/usr/local/bin")
    if program is None:
        pytest.fail(f"{_PACKAGE} is missing: apt-get install {_PACKAGE}")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        if namespace:
            inside = Path(folder) / "chromium"
            inside.write_text(f'#!/bin/sh\nexec nsenter --net={namespace} {program} "$@"\n')
            inside.chmod(0o755)
            program = str(inside)
        # The address of a test is on this machine, whatever proxy its environment names.
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-proxy-server"])
        try:
            yield chromium
        finally:
            chromium.close()


@contextlib.contextmanager
def browser(namespace: Path | None = None, chromium: Chromium | None = None) -> Iterator[Browser]:
    """Sessions in Chromium, ended with the block; a fault of one of their pages fails its end.

    Args:
        namespace: See `started`.
        chromium: One that is started; None for one of the block's own.
    """
    with contextlib.ExitStack() as stack:
        pages = Browser(chromium or stack.enter_context(started(namespace)))
        try:
            yield pages
        except BaseException as error:
            for fault in pages.faults:
                error.add_note(f"in the browser: {fault}")
            raise
        finally:
            pages.close()
        if pages.faults:
            pytest.fail("in the browser: " + "; ".join(pages.faults))


def faults(page: Page) -> list[str]:
    """What somebody could not read, could not hear, or would not hit with a finger.

    axe-core looks for what breaks a rule of WCAG or one of its own for good practice.
    """
    found = [
        f"{rule['id']}: {node['failureSummary']}: {node['html'][:200]}"
        for rule in Axe().run(page).response["violations"]
        for node in rule["nodes"]
    ]
    return found + page.evaluate((_HERE / "readable.js").read_text(encoding="utf-8"))


def faults_of_report(html: str, folder: Path) -> list[str]:
    """`faults` of a page without a server, by width and colours, and what is cut off in it."""
    place = folder / "report.html"
    place.write_text(html, encoding="utf-8")
    found = []
    with browser() as chromium:
        for width in (PHONE, DESK):
            for dark in (False, True):
                page = chromium.page(place.as_uri(), width, dark=dark)
                said = page.evaluate((_HERE / "report.js").read_text(encoding="utf-8"))
                found += [f"{width}, dark {dark}: {fault}" for fault in said + faults(page)]
    return found


def picture(page: Page, name: str) -> None:
    """The top of the page as docs/images/NAME.png, where UPDATE_PICTURES=1 asks for it."""
    if os.environ.get("UPDATE_PICTURES"):
        size = page.evaluate("[innerWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": size[0], "height": min(size[1], _TALLEST)}
        page.screenshot(path=_PICTURES / f"{name}.png", full_page=True, clip=clip)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
