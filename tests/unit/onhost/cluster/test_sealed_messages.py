"""Messages that members of a cluster accept: sealed, with a ticket, once; and their limits."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time

import pytest
from a_cluster import KEY
from lab_servers import LIMIT_S, free_port, until

from lockstep.onhost.cluster import sealed_messages, wire_client, wire_server
from lockstep.onhost.core import errors, layout, topology

MEMBERS = (
    topology.TopologyMember("spark1", "127.0.1.1"),
    topology.TopologyMember("spark2", "127.0.1.2"),
)


class Agent:
    """The second member's port; `asked` is what came through."""

    def __init__(self) -> None:
        port = free_port()
        self.cluster = topology.Cluster("pair", 1, port, MEMBERS)
        self.caller = wire_client.MemberClient(
            topology.Cluster("pair", 0, port, MEMBERS), KEY.encode()
        )
        self.requests: list[tuple[str, dict]] = []
        caller = wire_client.MemberClient(self.cluster, KEY.encode())
        self.server = wire_server.ClusterServer([caller], self.act, longest_s=LIMIT_S)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def act(self, _: object, verb: str, body: dict) -> dict:
        self.requests.append((verb, body))
        if verb == "slow":
            # The server looks for slow requests many times meanwhile.
            self.server._longest_s = 0.0
            time.sleep(0.5)
        if verb == "locked":
            raise errors.Problem("ben is switching", 75)
        if verb == "full":
            raise OSError(28, "No space left on device")
        return {"found": body["key"]}

    def ask(self, verb: str = "state", **how: object) -> dict:
        return self.caller.ask(MEMBERS[1], verb, {"key": 1}, **{"timeout": LIMIT_S, **how})

    def connections(self, count: int) -> list[socket.socket]:
        """So many connections of the first member, which have sent nothing yet."""
        to, first = ("127.0.1.2", self.cluster.port), ("127.0.1.1", 0)
        return [socket.create_connection(to, LIMIT_S, first) for _ in range(count)]

    def post(self, headers: dict[str, str], body: bytes = b'{"key": 1}', source: str = "127.0.1.1"):
        connection = http.client.HTTPConnection(
            "127.0.1.2", self.cluster.port, timeout=LIMIT_S, source_address=(source, 0)
        )
        connection.request("POST", "/pair/state", body, headers)
        response = connection.getresponse()
        return response.status, response.read()


@pytest.fixture
def agent():
    agent = Agent()
    yield agent
    agent.server.shutdown()
    agent.server.server_close()


def sealed_headers(
    key: str = KEY,
    recipient: str = "spark2",
    verb: str = "state",
    body=b'{"key": 1}',
    ticket: str = "",
):
    return sealed_messages.sealed_request_headers(
        key.encode(), "pair", recipient, verb, body, ticket
    )


def test_a_sealed_message_is_answered_with_a_seal(agent):
    assert agent.ask() == {"found": 1}
    assert agent.requests == [("state", {"key": 1})]


def test_what_a_member_refuses_comes_with_its_reason_and_code(agent):
    with pytest.raises(wire_client.MemberRefusal, match="spark2: ben is switching") as problem:
        agent.ask("locked")
    assert problem.value.code == 75


def test_a_member_that_cannot_write_says_so(agent):
    with pytest.raises(wire_client.MemberRefusal, match=r"full: .*No space left on device"):
        agent.ask("full")


def test_a_message_is_taken_once(agent):
    headers = sealed_headers(ticket=agent.server.guard.ticket())
    assert agent.post(headers)[0] == 200
    status, answer = agent.post(headers)
    assert status == 403
    assert json.loads(answer)["problem"] == "this message has been taken before"
    assert len(agent.requests) == 1


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (sealed_headers("x" * 40), b'{"key": 1}'),
        (sealed_headers(recipient="spark1"), b'{"key": 1}'),
        (sealed_headers(verb="drop"), b'{"key": 1}'),
        (sealed_headers(body=b'{"key": 2}'), b'{"key": 1}'),
        ({**sealed_headers(), "X-Lockstep-Ticket": "x 1"}, b'{"key": 1}'),
        ({}, b'{"key": 1}'),
        ({"X-Lockstep-Seal": "\xe9"}, b'{"key": 1}'),
    ],
    ids=[
        "other key",
        "other member",
        "other verb",
        "other body",
        "other ticket",
        "none",
        "no text",
    ],
)
def test_what_is_not_sealed_for_this_very_question_is_not_taken(agent, headers, body):
    assert agent.post(headers, body) == (401, b"")
    assert agent.requests == []


@pytest.mark.parametrize("shift", [-3600.0, -30.0, 30.0, 3600.0])
def test_no_clock_of_a_member_decides_whether_an_agent_that_was_restarted_hears_it(
    agent, monkeypatch, shift
):
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + shift)
    assert agent.ask() == {"found": 1}
    agent.server.guard = sealed_messages.SealVerifier()
    assert agent.ask() == {"found": 1}
    assert len(agent.requests) == 2


def test_a_message_that_an_earlier_agent_has_taken_is_not_taken_again(agent):
    headers = sealed_headers(ticket=agent.server.guard.ticket())
    assert agent.post(headers)[0] == 200
    agent.server.guard = sealed_messages.SealVerifier()
    status, answer = agent.post(headers)
    assert status == wire_client.STALE
    assert "ask again" in json.loads(answer)["problem"]
    assert len(agent.requests) == 1


def test_a_message_that_was_held_back_is_not_taken_late():
    now = [1000.0]
    guard = sealed_messages.SealVerifier(now=lambda: now[0])
    early, late = (sealed_headers(ticket=guard.ticket()) for _ in range(2))
    check = (KEY.encode(), "pair", "spark2", "state")
    guard.check(*check, early, b'{"key": 1}')
    now[0] += sealed_messages.TICKET_S - 1
    with pytest.raises(sealed_messages.RepeatedRequest):
        guard.check(*check, early, b'{"key": 1}')
    now[0] += 1
    for headers in (early, late):
        with pytest.raises(sealed_messages.StaleTicket):
            guard.check(*check, headers, b'{"key": 1}')


def test_what_was_taken_is_remembered_no_longer_than_its_ticket_serves():
    now = [1000.0]
    guard = sealed_messages.SealVerifier(now=lambda: now[0])
    for _ in range(3):
        headers = sealed_headers(ticket=guard.ticket())
        guard.check(KEY.encode(), "pair", "spark2", "state", headers, b'{"key": 1}')
        now[0] += sealed_messages.TICKET_S
    assert len(guard._seen_nonces) == 1


def test_who_was_not_asked_for_long_is_asked_again_by_itself(agent):
    now = [1000.0]
    agent.server.guard = sealed_messages.SealVerifier(now=lambda: now[0])
    assert agent.ask() == {"found": 1}
    now[0] += sealed_messages.TICKET_S
    assert agent.ask() == {"found": 1}
    assert len(agent.requests) == 2


def test_an_answer_whose_ticket_was_changed_is_no_answer():
    answer_seal = sealed_messages.answer_seal(KEY.encode(), "n", 200, "ticket", b"{}")
    assert sealed_messages.is_answer_seal(answer_seal, KEY.encode(), "n", 200, "ticket", b"{}")
    assert not sealed_messages.is_answer_seal(answer_seal, KEY.encode(), "n", 200, "other", b"{}")


def test_an_answer_of_somebody_without_the_key_is_no_answer(agent):
    agent.server.callers = {"pair": wire_client.MemberClient(agent.cluster, b"x" * 40)}
    with pytest.raises(wire_client.MemberUnreachable, match="its key is another one"):
        agent.ask()


def test_strangers_are_not_listened_to(agent):
    with pytest.raises((http.client.HTTPException, OSError)):
        agent.post(sealed_headers(), source="127.0.0.1")
    assert agent.requests == []


def test_what_is_too_large_is_not_read(agent):
    status, _ = agent.post({**sealed_headers(), "Content-Length": str(10**9)})
    assert status == 413
    assert agent.requests == []


def test_who_sends_slowly_is_cut_off_and_others_are_answered_meanwhile(agent):
    loris = agent.connections(3)
    for connection in loris:
        connection.sendall(b"POST /pair/state HTTP/1.1\r\nX: ")
    assert agent.ask() == {"found": 1}
    agent.server._longest_s = 0.0
    for connection in loris:
        assert connection.recv(100) == b""
        connection.close()


def test_no_member_can_take_more_than_its_share_of_connections(agent):
    many = agent.connections(wire_server.AT_ONCE)
    with pytest.raises(wire_client.MemberUnreachable):
        agent.ask(timeout=0.4)
    for connection in many:
        connection.close()
    until(lambda: is_answering(agent), "it answers again")


def is_answering(agent) -> bool:
    try:
        return bool(agent.ask(timeout=1))
    except wire_client.MemberUnreachable:
        return False


def test_an_answer_may_take_longer_than_a_request(agent):
    assert agent.ask("slow") == {"found": 1}


def test_a_message_of_another_version_is_named(agent):
    with pytest.raises(wire_client.MemberRefusal, match="state: not understood") as problem:
        agent.caller.ask(MEMBERS[1], "state", {})
    assert problem.value.code == 2


def test_a_short_key_is_refused(tmp_path):
    paths = layout.Paths(tmp_path)
    with pytest.raises(errors.Problem, match="Remedy: run the deploy"):
        sealed_messages.key(paths, "pair")
    paths.secrets.mkdir(parents=True)
    (paths.secrets / "cluster-pair.key").write_text("short\n")
    with pytest.raises(errors.Problem, match="expected 32 characters or more, found 5"):
        sealed_messages.key(paths, "pair")
