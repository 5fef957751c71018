"""The handlers of the page: its policy, and facts that are looked at once for all watchers."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from typing import Any, cast

import pytest
from starlette.requests import Request
from starlette.responses import StreamingResponse

from lockstep.files.templating import render_template
from lockstep.onhost.gateway import page
from lockstep.onhost.gateway.keys import Person
from lockstep.onhost.operator.live_state import Facts

ANNA, BOB = Person("anna", "operate"), Person("bob", "use")


class CountedFacts:
    """Facts that count how often they are read."""

    def __init__(self) -> None:
        self.looks = 0

    def facts_now(self) -> dict[str, Any]:
        self.looks += 1
        return {"host": "spark1", "looks": self.looks}


def make_page(facts: CountedFacts, **more: Any) -> page.Page:
    return page.Page(cast(Facts, facts), **more)


def page_request(query: str = "", accept: str = "application/json") -> Request:
    headers = [(b"accept", accept.encode())]
    scope = {"type": "http", "method": "GET", "path": "/status", "query_string": query.encode()}
    return Request({**scope, "headers": headers})


def test_only_the_pages_own_script_and_styles_may_run() -> None:
    text = render_template("page/gateway.html.j2")
    policy = page.content_security_policy(text)
    for kind in ("script", "style"):
        inside = text.partition(f"<{kind}>")[2].partition(f"</{kind}>")[0]
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert policy.count("sha256-") == text.count("<style>") + text.count("<script>") == 3
    assert "unsafe" not in policy and "http" not in policy and "default-src 'none'" in policy


def test_the_page_holds_nothing_of_elsewhere_and_nothing_that_its_policy_refuses() -> None:
    text = render_template("page/gateway.html.j2")
    # The link to Open WebUI is one to this host.
    own = ("http://www.w3.org/2000/svg", "http://${location.hostname}:")
    foreign = text.replace(own[0], "").replace(own[1], "")
    for word in (
        "http:",
        "https:",
        "//cdn",
        "@import",
        "url(",
        " style=",
        " onclick=",
        "innerHTML",
    ):
        assert word not in foreign, word


def test_the_page_comes_with_its_policy_and_is_kept_by_nobody(tmp_path) -> None:
    html = tmp_path / "gateway.html"
    html.write_text("<script>1</script>")
    answer = asyncio.run(make_page(CountedFacts(), path=html).page(page_request()))
    assert (answer.status_code, bytes(answer.body)) == (200, b"<script>1</script>")
    assert answer.headers["content-security-policy"] == page.content_security_policy(
        "<script>1</script>"
    )
    assert answer.headers["cache-control"] == "no-store"


def test_a_page_that_the_deploy_did_not_write_says_so(tmp_path) -> None:
    answer = asyncio.run(make_page(CountedFacts(), path=tmp_path / "no.html").page(page_request()))
    assert answer.status_code == 503 and b"run the deploy again" in bytes(answer.body)


def test_facts_are_one_document_with_the_person_who_asked() -> None:
    answer = asyncio.run(make_page(CountedFacts()).status(page_request(), ANNA))
    assert json.loads(bytes(answer.body)) == {
        "host": "spark1",
        "looks": 1,
        "you": {"name": "anna", "role": "operate"},
    }


def test_peers_are_told_beside_this_host() -> None:
    async def peers() -> dict[str, Any]:
        return {"spark2": {"fault": "no answer"}}

    whole = make_page(CountedFacts(), peers=peers)
    answer = asyncio.run(whole.status(page_request(), BOB))
    assert json.loads(bytes(answer.body))["peers"] == {"spark2": {"fault": "no answer"}}
    # To another gateway, which asks that host itself.
    assert "peers" not in json.loads(
        bytes(asyncio.run(whole.status(page_request(), BOB, alone=True)).body)
    )


@pytest.mark.parametrize(("query", "accept"), [("stream", "*/*"), ("", "text/event-stream")])
def test_watchers_share_a_look_and_without_one_nothing_is_looked_at(
    query: str, accept: str, monkeypatch
) -> None:
    monkeypatch.setattr(page, "FRESH_S", 3600.0)

    async def watch_page() -> None:
        facts = CountedFacts()
        whole = make_page(facts)
        answers = [
            await whole.status(page_request(query, accept), person) for person in (ANNA, BOB)
        ]
        streams = []
        for answer in answers:
            assert isinstance(answer, StreamingResponse)
            assert answer.media_type == "text/event-stream"
            streams.append(cast(Any, answer.body_iterator))
        first = [json.loads((await anext(stream)).removeprefix("data: ")) for stream in streams]
        assert [document["looks"] for document in first] == [1, 1]
        assert [document["you"]["name"] for document in first] == ["anna", "bob"]
        monkeypatch.setattr(page, "FRESH_S", 0.0)
        assert json.loads((await anext(streams[0])).removeprefix("data: "))["looks"] == 2
        for stream in streams:
            await stream.aclose()
        assert asyncio.all_tasks() == {asyncio.current_task()} and facts.looks == 2

    asyncio.run(watch_page())
