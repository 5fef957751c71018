"""A receiver of alerts on the lab's side of its network."""

import json
import subprocess
import sys
from dataclasses import dataclass

from stack import Follower

from lab.host import connection
from lab.host.network import NAMESPACES

#: Where the receiver listens, on the lab's side of its network.
ADDRESS, PORT = "10.77.0.1", 8499
_RECEIVER = """
import http.server, json, sys, time


class Taker(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()
        for alert in body["alerts"]:
            told = [time.time(), alert["status"], alert["labels"]]
            print(json.dumps([*told, self.headers["Authorization"]]), flush=True)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Taker)
print("[]", flush=True)
server.serve_forever()
"""


@dataclass(frozen=True)
class AlertMessage:
    """A message to the receiver: Unix time (s), "firing" or "resolved", alert and host.

    `authorization` is the header that came with it.
    """

    at: float
    status: str
    alert: str
    host: str
    authorization: str | None


class Receiver(Follower):
    """A webhook on the lab's side, and the messages that it got."""

    def __init__(self, lab: str) -> None:
        namespace = NAMESPACES / connection.load(lab).namespace
        words = ["nsenter", f"--net={namespace}", sys.executable, "-c", _RECEIVER]
        argv = [*words, ADDRESS, str(PORT)]
        super().__init__(
            lambda: subprocess.Popen(argv, stdout=subprocess.PIPE, text=True), self._read
        )
        self.messages: list[AlertMessage] = []

    def _read(self, line: str) -> None:
        # The first line says that it listens.
        if message := json.loads(line):
            at, status, labels, authorization = message
            self.messages.append(
                AlertMessage(at, status, labels["alertname"], labels["instance"], authorization)
            )
