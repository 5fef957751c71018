"""Requests that members of a cluster accept: of a certificate of theirs, once; and their limits."""

import contextlib
import http.client
import os
import signal
import socket
import ssl
import subprocess
import threading
import time

import pytest
from a_cluster import GLM, OWN, Spark, hosts_of
from an_identity import give_identity
from fork import Fork
from lab_servers import LIMIT_S, free_port, until

from lockstep.onhost.access import peer_tls
from lockstep.onhost.cluster import member_client, member_server
from lockstep.onhost.core import errors, layout, topology

ADDRESSES = {"spark1": "127.0.1.1", "spark2": "127.0.1.2"}
MEMBERS = tuple(topology.TopologyMember(*member) for member in ADDRESSES.items())
BODY = b'{"key": 1}'


def context(folder, host: str, *, is_server=False, **how: str) -> ssl.SSLContext:
    """One side of TLS, for a host with a new certificate."""
    paths = layout.Paths(folder / "-".join((host, *how.values())))
    give_identity(paths, host, **how)
    identity = peer_tls.identity_path(paths, how.get("role", peer_tls.AGENT), host)
    return peer_tls.make_context(identity, is_server=is_server)


class Agent:
    """The second member's port; `requests` is what came through."""

    def __init__(self, folder) -> None:
        port = free_port()
        self.cluster = topology.Cluster("pair", 1, port, MEMBERS)
        self.connect(context(folder, "spark1"))
        self.requests: list[tuple[str, dict]] = []
        tls = context(folder, "spark2", is_server=True)
        self.server = member_server.ClusterServer([self.cluster], tls, self.act, longest_s=LIMIT_S)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def connect(self, tls: ssl.SSLContext) -> None:
        """Let the first member ask with this certificate."""
        cluster = topology.Cluster("pair", 0, self.cluster.port, MEMBERS)
        self.caller = member_client.MemberClient(cluster, tls)

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

    def post(self, source="127.0.1.1", path="/pair/state", **headers: str) -> tuple[int, bytes]:
        """Status and body of the answer to any request with the first member's certificate."""
        how = {"timeout": LIMIT_S, "source_address": (source, 0), "context": self.caller.tls}
        connection = http.client.HTTPSConnection("127.0.1.2", self.cluster.port, **how)
        with contextlib.closing(connection):
            connection.request("POST", path, BODY, headers)
            response = connection.getresponse()
            return response.status, response.read()


@pytest.fixture
def agent(tmp_path):
    agent = Agent(tmp_path)
    yield agent
    agent.server.shutdown()
    agent.server.server_close()


@pytest.mark.parametrize(
    ("verb", "body", "reason", "code"),
    [
        ("locked", {"key": 1}, "spark2: ben is switching", 75),
        ("full", {"key": 1}, "full: .*No space left on device", 1),
        # A message of another version.
        ("state", {}, "state: not understood", 2),
    ],
)
def test_what_a_member_refuses_comes_with_its_reason_and_code(agent, verb, body, reason, code):
    with pytest.raises(member_client.MemberRefusal, match=reason) as problem:
        agent.caller.ask(MEMBERS[1], verb, body)
    assert problem.value.code == code
    # An answer may take longer than a request.
    assert agent.ask("slow") == {"found": 1}


REFUSED = "it answers 403: deploy to every member"


@pytest.mark.parametrize(
    ("side", "host", "how", "why"),
    [
        ("caller", "spark1", {"authority": "another"}, "if its authority is another one"),
        ("caller", "spark2", {}, REFUSED),
        ("caller", "spark1", {"role": "gateway"}, REFUSED),
        ("server", "spark2", {"authority": "another"}, "if its authority is another one"),
        ("server", "spark1", {}, "expected lockstep:agent:spark2, found lockstep:agent:spark1"),
        ("server", "spark2", {"role": "gateway"}, "found lockstep:gateway:spark2"),
    ],
)
def test_who_does_not_prove_to_be_the_member_is_told_nothing(agent, tmp_path, side, host, how, why):
    tls = context(tmp_path / "other", host, is_server=side == "server", **how)
    if side == "server":
        agent.server._tls = tls
    else:
        agent.connect(tls)
    with pytest.raises(member_client.MemberUnreachable, match=why):
        agent.ask()
    assert agent.requests == []


def test_who_shows_no_certificate_or_comes_from_elsewhere_is_refused(agent):
    with pytest.raises((http.client.HTTPException, OSError)):
        agent.post(source="127.0.0.1")
    address, first = ("127.0.1.2", agent.cluster.port), ("127.0.1.1", 0)
    plain = http.client.HTTPConnection(*address, timeout=LIMIT_S, source_address=first)
    with pytest.raises((http.client.HTTPException, OSError)):
        plain.request("POST", "/pair/state", BODY)
        plain.getresponse()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    agent.connect(tls)
    with pytest.raises(OSError):
        agent.post()
    assert agent.requests == []


def test_what_is_too_large_or_for_another_cluster_is_not_read(agent):
    assert agent.post(**{"Content-Length": str(10**9)})[0] == 413
    assert agent.post(path="/other/state") == (404, b"")
    assert agent.requests == []


@pytest.mark.parametrize("is_greeting", [True, False])
def test_who_sends_slowly_is_cut_off_and_others_are_answered_meanwhile(agent, is_greeting):
    loris = agent.connections(3)
    if is_greeting:
        loris = [agent.caller.tls.wrap_socket(connection) for connection in loris]
        for connection in loris:
            connection.sendall(b"POST /pair/state HTTP/1.1\r\nX: ")
    assert agent.ask() == {"found": 1}
    agent.server._longest_s = 0.0
    for connection in loris:
        assert connection.recv(100) == b""
        connection.close()


def test_no_member_can_take_more_than_its_share_of_connections(agent):
    def answers() -> bool:
        with contextlib.suppress(member_client.MemberUnreachable):
            return bool(agent.ask(timeout=1))
        return False

    many = agent.connections(member_server.AT_ONCE)
    with pytest.raises(member_client.MemberUnreachable):
        agent.ask(timeout=0.4)
    for connection in many:
        connection.close()
    until(answers, "it answers again")


#: Of agents that are processes. Short, so that nobody waits here; under load a beat takes its time.
TIMES = ("--lease", "3", "--beat", "0.2", "--look", "0.5", "--token-wait", "2")


def start_program(spark: Spark, module: str, *words: str) -> subprocess.Popen[str]:
    """One of a host's programs."""
    environment = {**os.environ, "FAKE_SYSTEMD": str(spark.systemd.folder)}
    return Fork(lambda: spark.program(module, *words), env=environment, stdout=subprocess.DEVNULL)


def answers(spark: Spark) -> bool:
    with contextlib.suppress(Exception):
        return bool(spark.agent_state())
    return False


@pytest.mark.slow
def test_a_killed_switch_is_undone_by_its_lease_and_agents_end_in_order(tmp_path, monkeypatch):
    pair = hosts_of(tmp_path, monkeypatch, 2, free_port())
    agents = [start_program(spark, "cluster.agent", *TIMES) for spark in pair]
    try:
        for spark in pair:
            until(lambda spark=spark: answers(spark), "its agent listens")
        pair[1].systemd.unit(OWN, ActiveState="active", SubState="running")
        pair[0].systemd.unit(GLM, on_start=LIMIT_S)
        work = start_program(pair[0], "operator.switch_sh", "--worker", "glm", "alice")
        until(lambda: pair[1].hot == ["glm"], "rank 1 is up")
        work.kill()
        until(lambda: pair[1].hot == ["own"], "its model is back")
        assert pair[0].hot == [] and f"systemctl start -- {OWN}" in pair[1].systemd.calls
        work.wait(LIMIT_S)
        for agent in agents:
            agent.send_signal(signal.SIGTERM)
        assert [agent.wait(LIMIT_S) for agent in agents] == [0, 0]
    finally:
        for agent in agents:
            agent.kill()
            agent.wait()
        for spark in pair:
            spark.close()
