"""Open WebUI in a browser: the parts that the real one (0.12.4) and the lab's stand-in share."""

from playwright.sync_api import Page, expect

_MODEL = "#model-selector-model-button"


class WebUI:
    """The page of a user who has signed in."""

    def __init__(self, page: Page, email: str, password: str) -> None:
        self._page = page
        self._url = page.url
        # The real Open WebUI shows its news to an administrator once.
        news = page.get_by_role("button", name="Okay, Let's Go!")
        page.add_locator_handler(news, lambda button: button.click())
        page.locator("input[type=email], input[name=email]").fill(email)
        page.locator("input[type=password]").fill(password)
        page.locator("button[type=submit]").click()
        page.locator("#chat-input").wait_for()

    @property
    def chosen_model(self) -> str:
        """The model that gets the next message."""
        label = self._page.locator(_MODEL).get_attribute("aria-label") or ""
        return label.removeprefix("Selected model: ")

    def models(self) -> list[str]:
        """The names in the picker, in its order; each opening of the picker asks for them anew."""
        with self._page.expect_response(lambda answer: "/api/models" in answer.url):
            self._page.locator(_MODEL).click()
        self._page.locator("[data-value]").first.wait_for()
        names = self._page.locator("[data-value]").all()
        model_names = [name.get_attribute("data-value") or "" for name in names]
        self._page.keyboard.press("Escape")
        return model_names

    def new_chat(self, model: str) -> None:
        """Begin an empty chat with a model out of the picker."""
        self._page.goto(self._url)
        self._page.locator("#chat-input").wait_for()
        self._page.locator(_MODEL).click()
        self._page.locator(f"[data-value='{model}']").click()

    def say(self, text: str) -> None:
        """Send a message."""
        self._page.locator("#chat-input").click()
        self._page.keyboard.type(text)
        self._page.keyboard.press("Enter")

    def reads(self, text: str, limit_s: float = 20) -> None:
        """Wait until the last answer, or the error in its place, has this text."""
        answer = self._page.locator("#response-content-container").last
        expect(answer).to_contain_text(text, timeout=limit_s * 1000)
