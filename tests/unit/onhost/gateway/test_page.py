"""The handlers of the page: its policy, and facts that are looked at once for all watchers."""

import asyncio
import base64
import hashlib
import json
from typing import Any

import pytest
from event_loop import in_event_loop
from starlette.requests import Request
from starlette.responses import StreamingResponse

from lockstep.files.templating import render_template
from lockstep.onhost.gateway import page
from lockstep.onhost.gateway.keys import Person

ANNA, BOB = Person("anna", "operate"), Person("bob", "use")


class CountedFacts:
    """Facts that count how often they are read."""

    def __init__(self) -> None:
        self.looks = 0

    def facts_now(self) -> dict[str, Any]:
        self.looks += 1
        return {"host": "spark1", "looks": self.looks}


def page_request(query: str = "", accept: str = "application/json") -> Request:
    headers = [(b"accept", accept.encode())]
    scope = {"type": "http", "method": "GET", "path": "/status", "query_string": query.encode()}
    return Request({**scope, "headers": headers})


def test_only_the_pages_own_script_and_styles_may_run_and_it_needs_no_others():
    text = render_template("page/gateway.html.j2")
    policy = page.content_security_policy(text)
    for kind in ("script", "style"):
        inside = text.partition(f"<{kind}>")[2].partition(f"</{kind}>")[0]
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert policy.count("sha256-") == text.count("<style>") + text.count("<script>") == 3
    assert "unsafe" not in policy and "http" not in policy and "default-src 'none'" in policy


def test_the_page_comes_with_its_policy_and_is_kept_by_nobody(tmp_path):
    html, script = tmp_path / "gateway.html", "<script>1</script>"
    absent_page = asyncio.run(page.Page(CountedFacts(), path=html).page(page_request()))
    assert absent_page.status_code == 503
    assert b"run the deploy again" in bytes(absent_page.body)
    html.write_text(script)
    answer = asyncio.run(page.Page(CountedFacts(), path=html).page(page_request()))
    assert (answer.status_code, bytes(answer.body)) == (200, script.encode())
    assert answer.headers["content-security-policy"] == page.content_security_policy(script)
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(("query", "accept"), [("stream", "*/*"), ("", "text/event-stream")])
@in_event_loop
async def test_watchers_share_a_look_and_without_one_nobody_looks(query, accept, monkeypatch):
    monkeypatch.setattr(page, "FRESH_S", 3600.0)
    facts, streams, earlier_tasks = CountedFacts(), [], asyncio.all_tasks()
    whole = page.Page(facts)
    for person in (ANNA, BOB):
        answer = await whole.status(page_request(query, accept), person)
        assert isinstance(answer, StreamingResponse)
        assert answer.media_type == "text/event-stream"
        streams.append(answer.body_iterator)
    documents = [json.loads((await anext(stream)).removeprefix("data: ")) for stream in streams]
    looks = [(document["looks"], document["you"]["name"]) for document in documents]
    assert looks == [(1, "anna"), (1, "bob")]
    monkeypatch.setattr(page, "FRESH_S", 0.0)
    assert json.loads((await anext(streams[0])).removeprefix("data: "))["looks"] == 2
    for stream in streams:
        await stream.aclose()
    assert (facts.looks, asyncio.all_tasks()) == (2, earlier_tasks)
