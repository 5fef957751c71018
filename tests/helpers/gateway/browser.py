"""Pages in a real Chromium, the distribution's, driven by Playwright."""

import contextlib
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import BrowserContext, ConsoleMessage, Page, sync_playwright

_TALLEST = 1100  # Of a picture, CSS pixels.
_PACKAGE = "chromium-headless-shell"
#: Widths of a phone and of a desk, CSS pixels.
PHONE, DESK = 390, 1280
_HERE = Path(__file__).parent
_PICTURES = Path(__file__).parents[3] / "docs" / "images"
#: Chromium's own report of an answer of 400 and more, not a script's.
_ANSWERED = "Failed to load resource: the server responded with a status of "


class Browser:
    """Sessions in a Chromium; `faults` are things that no page may do."""

    def __init__(self, chromium: Chromium) -> None:
        self._chromium = chromium
        self._sessions: list[BrowserContext] = []
        self.faults: list[str] = []

    def page(
        self, url: str, width: int = 1280, *, dark: bool = False, refusals: tuple[int, ...] = ()
    ) -> Page:
        """A page at `url`, in a session of its own, `width` CSS pixels wide.

        Faults are: an error on its console, an exception in its script, and a request to another
        origin, which is not sent. `refusals` are the HTTP status codes of 400 and more that the
        test wants to meet.
        """
        scheme = "dark" if dark else "light"
        height = 844 if width < 600 else 800
        context = self._chromium.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme
        )
        self._sessions.append(context)
        page = context.new_page()
        page.on("console", lambda message: self._record_console(message, refusals))
        page.on("pageerror", lambda error: self.faults.append(f"exception: {error}"))
        own = _origin(url)
        page.on("websocket", lambda socket: self._check(socket.url, own.replace("http", "ws", 1)))
        page.route(
            lambda request_url: _origin(request_url) != own,
            lambda route, request: (self._check(request.url, own), route.abort())[0],
        )
        page.goto(url)
        return page

    def close(self) -> None:
        """End the sessions."""
        for context in self._sessions:
            context.close()

    def _record_console(self, message: ConsoleMessage, refusals: tuple[int, ...]) -> None:
        is_expected = any(message.text.startswith(f"{_ANSWERED}{code} ") for code in refusals)
        if message.type == "error" and not is_expected:
            place = message.location
            self.faults.append(f"console: {message.text} ({place['url']}:{place['lineNumber']})")

    def _check(self, request_url: str, origin: str) -> None:
        if _origin(request_url) != origin:
            self.faults.append(f"request to another origin: {request_url}")


@contextlib.contextmanager
def start_chromium(namespace: Path | None = None) -> Iterator[Chromium]:
    """A Chromium for `browser`, in the network namespace that is given.

    Start one at a time in a thread, and call no `asyncio.run` in the block: Playwright's own loop
    runs there.
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
        # The test's address is on this machine, so a proxy of the environment must not be used.
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-proxy-server"])
        try:
            yield chromium
        finally:
            chromium.close()


@contextlib.contextmanager
def browser(namespace: Path | None = None, chromium: Chromium | None = None) -> Iterator[Browser]:
    """Sessions in Chromium, ended with the block; a fault of one of their pages fails its end.

    They run in `chromium`, or in a Chromium of the block's own, in this network namespace.
    """
    with contextlib.ExitStack() as stack:
        pages = Browser(chromium or stack.enter_context(start_chromium(namespace)))
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
    """The faults of a page for somebody who cannot read it, hear it, or hit a target with a finger.

    axe-core reports breaches of a rule of WCAG or of one of its own for good practice.
    """
    findings = [
        f"{rule['id']}: {node['failureSummary']}: {node['html'][:200]}"
        for rule in Axe().run(page).response["violations"]
        for node in rule["nodes"]
    ]
    return findings + page.evaluate((_HERE / "readable.js").read_text(encoding="utf-8"))


def faults_of_report(html: str, folder: Path) -> list[str]:
    """`faults` of a page without a server, by width and colours, and its cut-off parts."""
    place = folder / "report.html"
    place.write_text(html, encoding="utf-8")
    findings = []
    with browser() as chromium:
        for width, dark in itertools.product((PHONE, DESK), (False, True)):
            page = chromium.page(place.as_uri(), width, dark=dark)
            found_faults = page.evaluate((_HERE / "report.js").read_text(encoding="utf-8"))
            found_faults += faults(page)
            findings += [f"{width}, dark {dark}: {fault}" for fault in found_faults]
    return findings


def picture(page: Page, name: str) -> None:
    """Save the top of the page as docs/images/NAME.png, if UPDATE_PICTURES=1."""
    if os.environ.get("UPDATE_PICTURES"):
        size = page.evaluate("[innerWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": size[0], "height": min(size[1], _TALLEST)}
        page.screenshot(path=_PICTURES / f"{name}.png", full_page=True, clip=clip)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
