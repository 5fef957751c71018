"""Hostile requests to the gateway."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stack import until

from hostile_rows.programs import ASK, UNFINISHED
from hostile_rows.row import CHAT_OF, Do, Row, expect, short

if TYPE_CHECKING:
    from hostile import Site

GET = "GET {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

POST = (
    "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    "Content-Length: LENGTH\r\nConnection: close\r\n{}\r\n"
)

CHAT = '{"model":"qwen","max_tokens":4,"messages":[{"role":"user","content":"x"}]'

#: Most that the gateway may grow by one request, KiB: bodies may have 50 MiB, and are held twice.
_GROWTH_KIB = 400 * 1024

#: Longest that /health may wait meanwhile, seconds, on a machine that others use too.
_WAIT_S = 5.0

Part = str | tuple[str, int]


@dataclass(frozen=True)
class Shape:
    """A request, its repetitions, and its allowed statuses: 000 stands for none, 001 for closed."""

    head: tuple[Part, ...]
    body: tuple[Part, ...] = ()
    right: str = "400"
    times: int = 1
    half: bool = False
    wait_s: float = 30.0
    most: int = 1
    port: int = 8090


def post(
    *body: Part,
    path: str = "/v1/chat/completions",
    more: str = "",
    right: str = "400",
    **fields: object,
) -> Shape:
    """A POST with its right length, and more headers."""
    return Shape((POST.format(path, more),), body, right, **fields)  # type: ignore[arg-type]


def raw(*head: Part, right: str = "400", **fields: object) -> Shape:
    """A request of exactly these bytes."""
    return Shape(head, (), right, **fields)  # type: ignore[arg-type]


def send(site: Site, *shapes: Shape) -> str:
    """Send each shape: its statuses are right, others are served, the gateway stays as it is."""
    site.be_hot("qwen")
    statuses: Counter[str] = Counter()
    longest = 0.0
    for shape in shapes:
        earlier_state = _gateway(site)
        order = {
            "head": shape.head,
            "body": shape.body,
            "times": shape.times,
            "half": shape.half,
            "wait": shape.wait_s,
            "port": shape.port,
        }
        argv = ["python3", "-c", ASK, json.dumps(order)]
        answer = site.run("ulimit -n 8192; " + shlex.join(argv), "eve", 240)
        expect(answer.code == 0, short(answer))
        report = json.loads(answer.out)
        later_state = _gateway(site)
        words = f"{report['statuses']}, /health {report['worst']} s"
        wrong = set(report["statuses"]) - set(shape.right.split())
        shape_text = f"{str(shape.head)[:60]} {str(shape.body)[:60]}"
        expect(not wrong, f"{words}, not {shape.right}: {shape_text}")
        expect(report["most"] <= shape.most, f"{report['most']} answers: {shape_text}")
        expect(report["worst"] < _WAIT_S and not report["failed"], f"{report}: {shape_text}")
        expect(earlier_state[0] == later_state[0], f"the gateway was started again: {shape_text}")
        expect(
            later_state[1] - earlier_state[1] < _GROWTH_KIB,
            f"{later_state[1] - earlier_state[1]} KiB more: {shape_text}",
        )
        statuses.update(report["statuses"])
        longest = max(longest, report["worst"])
    return f"{len(shapes)} shapes: {dict(statuses)}; /health at most {longest} s"


def sending(*shapes: Shape) -> Do:
    """The function of a row that sends shapes."""
    return lambda site: send(site, *shapes)


def _gateway(site: Site) -> tuple[str, int]:
    """Main process of the gateway and its resident memory, KiB."""
    pid = site.host.show("lockstep-gateway", "MainPID")
    return pid, int(site.host.root(f"awk '/VmRSS/ {{print $2}}' /proc/{pid}/status"))


def spoofs(site: Site, *headers: str, path: str = "/v1/models") -> str:
    """Headers that claim another site or another caller: refused."""
    site.be_hot("qwen")
    went = []
    for header in headers:
        option = ["-X", "POST", "-d", "{}"] if path == "/switch" else []
        answer = site.ask(path, "-H", header, *option)
        if answer.out[-3:] not in ("400", "401", "403", "404", "405"):
            went.append(f"{header}: {answer.out[-3:]}")
    expect(not went, ", ".join(went))
    return f"{len(headers)} refused"


def key_in_query(site: Site) -> str:
    site.ask(f"/v1/models?key={site.key}&api_key={site.key}")
    count = site.host.root(
        f"journalctl --sync; journalctl -u lockstep-gateway -o cat | grep -c {site.key}; true"
    )
    expect(count.strip() == "0", count)
    return "in no line of the journal"


def wrong_keys(site: Site) -> str:
    site.be_hot("qwen")
    wrong = (
        "seq 1000 | xargs -P 50 -I X curl -s -o /dev/null -w '%{http_code}\\n' --max-time 60 "
        "-H 'Authorization: Bearer lk-X' 127.0.0.1:8090/v1/models | sort | uniq -c"
    )
    good = (
        "for each in $(seq 20); do curl -s -o /dev/null -w '%{http_code}\\n' --max-time 60 "
        f"-H 'Authorization: Bearer {site.key}' 127.0.0.1:8090/v1/models; done | sort | uniq -c"
    )
    answer = site.run(f"({wrong}) & {good}; wait", "eve", 200)
    counts = " ".join(answer.out.split())
    expect(sorted(answer.out.split()) == sorted(["20", "200", "1000", "401"]), counts)
    return counts


def odd_keys(site: Site) -> str:
    """Two keys, a long one, one of other letters, a key of another scheme: none may switch.

    On loopback a client without a key may use models, so a word that is no key is no fault there.
    """
    site.be_hot("qwen")
    good = f"Authorization: Bearer {site.key}"
    went = []
    for headers in (
        (good, "Authorization: Bearer lk-person-of-eve"),
        (good, "x-api-key: lk-person-of-eve"),
        ("Authorization: Bearer " + "x" * 30000,),
        ("Authorization: Basic " + site.key,),
        ("Authorization: Bearer \u00e9\u00e9",),
        (f"Authorization: Bearer {site.key} {site.key}",),
        (f"Authorization: Bearer {site.key.upper()}",),
    ):
        options = [word for header in headers for word in ("-H", header)]
        answer = site.ask("/switch", *options, body={"model": "mistral"})
        if answer.out[-3:] not in ("400", "401", "403", "404", "431"):
            went.append(f"{headers[-1][:40]}: {answer.out[-3:]}")
    expect(not went, ", ".join(went))
    expect(site.hot == "qwen", f"hot: {site.hot}")
    return "none may switch"


def person_switches(site: Site) -> str:
    """A person who may use models, and eve without a key, ask for a switch."""
    site.be_hot("qwen")
    statuses = []
    for options in ((), ("-H", f"Authorization: Bearer {site.key}")):
        answer = site.ask("/switch", *options, body={"model": "mistral"})
        expect(answer.out[-3:] in ("401", "403", "404"), short(answer))
        statuses.append(answer.out[-3:])
    expect(site.hot == "qwen", f"hot: {site.hot}")
    return ", ".join(statuses)


def revoke_key(site: Site) -> str:
    site.be_hot("qwen")
    key = site.new_key("carl")
    body = {**CHAT_OF, "model": "qwen", "stream": True, "ignore_eos": True, "max_tokens": 900}
    argv = ["curl", "-sN", "-w", "CODE %{http_code}", "-H", f"Authorization: Bearer {key}"]
    argv += ["-H", "Content-Type: application/json", "-d", json.dumps(body)]
    site.begin("stream", shlex.join([*argv, "http://127.0.0.1:8090/v1/chat/completions"]))
    until(lambda: "data:" in site.saw("stream"), "the stream has begun", 30)
    answer = site.stack.lockstep("key revoke", "carl")
    expect(answer.code == 0, short(answer))
    later_answer = site.ask("/v1/models", "-H", f"Authorization: Bearer {key}")
    until(lambda: "CODE" in site.saw("stream"), "the stream has ended", 60)
    expect("[DONE]" in site.saw("stream") and later_answer.out.endswith("401"), short(later_answer))
    mode = site.host.root("stat -c '%a %U:%G' /etc/lockstep/gateway/keys.json").strip()
    expect(mode == "640 root:lockstep-gateway", mode)
    return "the stream ends well, next 401"


def places(site: Site) -> str:
    """eve opens 2,100 requests that never end; anna is served, and they are cut."""
    site.be_hot("qwen")
    site.begin("places", "ulimit -n 8192; exec " + shlex.join(["python3", "-u", "-c", UNFINISHED]))
    until(lambda: "EVE HOLDS" in site.saw("places"), "eve holds places", 60)
    body = {**CHAT_OF, "model": "qwen"}
    answer = site.ask("/v1/chat/completions", "-H", f"Authorization: Bearer {site.key}", body=body)
    expect(answer.out.endswith("200"), f"anna: {short(answer)}")
    until(lambda: "EVE IS CUT" in site.saw("places"), "they are cut", 150)
    later_answer = site.ask("/v1/chat/completions", body=body)
    expect(later_answer.out.endswith("200"), f"eve afterwards: {short(later_answer)}")
    return f"anna 200; {site.saw('places').splitlines()[-1]}"


def slow_readers(site: Site) -> str:
    """Streams whose client never reads: the gateway holds little of them, and serves others."""
    site.be_hot("qwen")
    body = json.dumps(
        {**CHAT_OF, "model": "qwen", "stream": True, "ignore_eos": True, "max_tokens": 900}
    )
    request = POST.format("/v1/chat/completions", "").replace("LENGTH", str(len(body))) + body
    program = (
        "import socket, time\nopened = []\nfor _ in range(100):\n"
        "    each = socket.socket()\n    each.setsockopt(1, 8, 2048)\n"
        "    each.connect(('127.0.0.1', 8090))\n"
        f"    each.sendall({request!r}.encode())\n    opened.append(each)\n"
        "print('EVE HOLDS')\ntime.sleep(600)"
    )
    earlier_state = _gateway(site)
    site.begin_python("readers", program)
    until(lambda: "EVE HOLDS" in site.saw("readers"), "eve reads nothing", 60)
    answer = site.ask("/v1/chat/completions", body={**CHAT_OF, "model": "qwen"})
    later_state = _gateway(site)
    expect(answer.out.endswith("200"), short(answer))
    expect(
        later_state[1] - earlier_state[1] < _GROWTH_KIB and earlier_state[0] == later_state[0],
        f"{earlier_state} {later_state}",
    )
    switch_answer = site.switch("mistral")
    expect(switch_answer.code == 0, short(switch_answer))
    return f"others 200, {later_state[1] - earlier_state[1]} KiB more, a switch away rc 0"


def gateway_gone(site: Site) -> str:
    """The gateway cannot run; status says so."""
    site.host.root("systemctl mask --runtime --now --quiet lockstep-gateway.service")
    try:
        status = site.switch("status")
    finally:
        site.host.root(
            "systemctl unmask --runtime --quiet lockstep-gateway.service; "
            "systemctl start lockstep-gateway.service"
        )
    expect("ateway" in status.text, f"no word of it: {short(status)}")
    return " ".join(line for line in status.text.splitlines() if "ateway" in line)[:160]


def _smuggling_shape(headers: str, body: str) -> Shape:
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n{body}"
    return raw(head, right="400 411 413 415 501 404 000 001 408 431", wait_s=5)


SMUGGLED = tuple(
    _smuggling_shape(headers, body)
    for headers, body in (
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\nGET /x HTTP/1.1\r\n\r\n"),
        ("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"),
        ("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"),
        ("Transfer-Encoding : chunked\r\n", "0\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
        ("Content-Length: 2\r\nContent-Length: 3\r\n", "{}"),
        ("Content-Length: +5\r\n", "{}   "),
        ("Content-Length: -1\r\n", "{}"),
        ("Content-Length: 0x2\r\n", "{}"),
        ("Content-Length: 99999999999999999999\r\n", "{}"),
        ("Content-Length: 2\r\n X: folded\r\n", "{}"),
        ("X: a\rb\r\nContent-Length: 2\r\n", "{}"),
        ("X: a\x00b\r\nContent-Length: 2\r\n", "{}"),
        ("Transfer-Encoding: chunked\r\n", "FFFFFFFFFFFFFFFFF\r\n{}"),
        ("Transfer-Encoding: chunked\r\n", "2;" + "x" * 70000 + "\r\n{}\r\n0\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\n", "-2\r\n{}\r\n0\r\n\r\n"),
    )
)

ENGINE_PATHS = (
    "//v1/models",
    "/%2e%2e/health",
    "/v1/..%2fpause",
    "/v1/../pause",
    "*",
    "/\x00",
    "/pause",
    "/flush_cache",
    "/v1/models/../../pause",
    "/V1/models",
    "/invocations",
)

SPOOFED = (
    "Host: evil.example",
    "Host: 127.0.0.1.evil.example",
    "Host: 2130706433",
    "Host: a@localhost",
    "Host: localhost.evil",
    "Origin: http://evil.example",
    "Origin: null",
    "Origin: http://localhost.evil.example",
    "Sec-Fetch-Site: cross-site",
)

MANY = 4_500_000

ROWS = (
    Row(
        "G1",
        "600 heads that do not come: cut, others answered",
        sending(raw("GET / HTTP/1.1\r\nHost: loc", right="408 400 001", times=600, wait_s=90)),
    ),
    Row(
        "G1b",
        "300 bodies that do not come: cut, others answered",
        sending(
            raw(
                POST.format("/v1/chat/completions", "").replace("LENGTH", "900"),
                "{",
                right="408",
                times=300,
                wait_s=90,
            )
        ),
    ),
    Row(
        "G2",
        "headers and bodies of any size: an answer each, no fatter gateway",
        sending(
            raw(
                "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX: ",
                ("y", 5000),
                "\r\n\r\n",
                right="200",
            ),
            raw(
                "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX: ",
                ("y", 71680),
                "\r\n\r\n",
                right="431 400 001",
            ),
            raw(
                "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n",
                ("X%d: y\r\n", 5000),
                "\r\n",
                right="200 400 431 001",
            ),
            post(CHAT, ',"x":"', ("y", 120 * 2**20), '"}', right="413 001"),
            post(
                "\x1f\x8b\x08", ("\x00", 1000), more="Content-Encoding: gzip\r\n", right="415 400"
            ),
        ),
    ),
    Row(
        "G2b",
        "a million, and 4.5 million members: refused, nobody waits",
        sending(
            post("{", ('"k%d":1,', 1_000_000), '"model":"qwen"}', right="400 413"),
            post("{", ('"k":1,', MANY), '"model":"qwen"}', right="400 413"),
        ),
    ),
    Row(
        "G2c",
        "deep nesting, a long number, a lone surrogate, two models",
        sending(
            post(CHAT, ',"x":', ("[", 200_000), ("]", 200_000), "}"),
            post(CHAT, ',"x":', ("9", 5_000_000), "}"),
            post(CHAT, ',"x":"\\ud800"}', right="400 200"),
            post(CHAT, ',"model":"nobody"}', right="400 404"),
        ),
    ),
    Row("G3", "two lengths, chunks and lengths, folds, NUL: one answer each", sending(*SMUGGLED)),
    Row(
        "G3b",
        "Host twice, in each order: 400",
        sending(
            *(
                raw(f"GET /v1/models HTTP/1.1\r\nHost: {first}\r\nHost: {second}\r\n\r\n")
                for first, second in (("evil", "localhost"), ("localhost", "evil"))
            )
        ),
    ),
    Row(
        "G3c",
        "half-closed clients: a GET is answered, a POST or none, and nothing waits",
        sending(
            raw(GET.format("/v1/models"), right="200", half=True),
            post(CHAT, "}", right="200 001", half=True),
        ),
    ),
    Row(
        "G4",
        "paths of the engine, doubled slashes, dots: closed",
        sending(*(raw(GET.format(path), right="404 400 405") for path in ENGINE_PATHS)),
    ),
    Row(
        "G5",
        "Host, Origin and Sec-Fetch-Site of others: refused",
        lambda site: spoofs(site, *SPOOFED),
    ),
    Row("G5b", "the same for POST /switch", lambda site: spoofs(site, *SPOOFED, path="/switch")),
    Row("G6", "a key in a query string is not logged", key_in_query),
    Row("G7", "1,000 wrong keys among 20 good ones: 401 and 200", wrong_keys),
    Row("G8", "a key revoked while its stream is open: ends well, then 401", revoke_key),
    Row("G9", "eve opens 2,100 requests without end: anna is served, they are cut", places),
    Row(
        "B1",
        "millions of numbers, of empty texts, one text of escapes: nobody waits",
        sending(
            post(CHAT, ',"x":[', ("1,", 5_000_000), "1]}", right="400 413"),
            post(CHAT, ',"x":[', ('"",', 3_000_000), '""]}', right="400 413"),
            post(CHAT, ',"x":"', ("\\u0000", 8 * 2**20), '"}', right="400 200 413"),
        ),
    ),
    Row(
        "B2",
        "NaN, Infinity, 1e999, UTF-16, a mark of byte order, a list, a model of odd type",
        sending(
            *(
                post(*body, right="400 404 200 415 422")
                for body in (
                    (CHAT, ',"temperature":NaN}'),
                    (CHAT, ',"temperature":1e999}'),
                    (CHAT, ',"temperature":-Infinity}'),
                    ("\xff\xfe{\x00}\x00",),
                    ("\xef\xbb\xbf", CHAT, "}"),
                    ("[", CHAT, "}]"),
                    ('{"model":["qwen"]}',),
                    ('{"model":{"a":1}}',),
                    ('{"model":"', ("q", 10 * 2**20), '"}'),
                    ("",),
                    ("null",),
                )
            )
        ),
    ),
    Row(
        "B3",
        "Origin, Content-Type and Content-Encoding twice, an engine's method",
        sending(
            post(
                CHAT,
                "}",
                more="Origin: http://localhost\r\nOrigin: http://evil\r\n",
                right="400 403",
            ),
            post(
                CHAT,
                "}",
                more="Content-Encoding: identity\r\nContent-Encoding: gzip\r\n",
                right="400 415",
            ),
            *(
                raw(
                    f"{method} /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                    "Connection: close\r\n\r\n",
                    right="400 403 404 405 501",
                )
                for method in ("TRACE", "CONNECT", "PUT", "DELETE", "OPTIONS", "X" * 300)
            ),
        ),
    ),
    Row(
        "B4",
        "a thousand requests in one piece, answers unread: one after the other",
        sending(
            raw(
                ("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 1000),
                right="200 503 429 001",
                most=1000,
            )
        ),
    ),
    Row(
        "B5",
        "an upgrade, an expectation without its body, a trailer with a key",
        sending(
            raw(
                "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, close\r\n"
                "Upgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n",
                right="200 400 403 404 426",
            ),
            raw(
                POST.format("/v1/chat/completions", "Expect: 100-continue\r\n").replace(
                    "LENGTH", "50"
                ),
                right="100 408 417",
                wait_s=60,
                most=2,
            ),
            raw(
                "POST /switch HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
                "Connection: close\r\nTrailer: Authorization\r\n\r\n2\r\n{}\r\n0\r\n"
                "Authorization: Bearer x\r\n\r\n",
                right="400 401 403 404 415",
            ),
        ),
    ),
    Row("B6", "two keys, long ones, other schemes: nobody who may switch", odd_keys),
    Row("B7", "eve and a person who may only use ask for a switch: refused", person_switches),
    Row(
        "B8",
        "100 streams whose client never reads: others served, a switch away works",
        slow_readers,
    ),
    Row("B9", "the gateway is down: status says so", gateway_gone),
)
