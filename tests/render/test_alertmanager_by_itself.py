"""The deploy's files for Alertmanager, by the real amtool and the real Alertmanager."""

import base64
import json
import re
import socketserver
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tools
from a_spark import spark
from lab_servers import ask, free_port, until
from local_server import Reply, serving

from lockstep.monitoring.alertmanager import UNIT, alertmanager_text, credentials
from lockstep.onhost.monitoring import send_test_alert
from lockstep.onhost.monitoring.alertmanager_client import Alertmanager

TOKEN, PASSWORD = "tk_" + 20 * "t", "p4ss word"
_CREDENTIALS = f"/run/credentials/{UNIT}"


class Mail(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """A mail server that keeps its messages; it asks for a login."""

    daemon_threads = allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Mail)
        self.mails: list[str] = []
        self.logins: list[str] = []


class _Mail(socketserver.StreamRequestHandler):
    server: Mail

    def handle(self) -> None:
        self._say("220 mail")
        for line in self.rfile:
            word = line.decode().strip()
            match word.upper().split(" ")[0]:
                case "EHLO":
                    self._say("250-mail")
                    self._say("250 AUTH PLAIN")
                case "AUTH":
                    self.server.logins.append(base64.b64decode(word.split()[2]).decode())
                    self._say("235 welcome")
                case "DATA":
                    self._say("354 go on")
                    self.server.mails.append(self._mail())
                    self._say("250 taken")
                case "QUIT":
                    self._say("221 bye")
                    return
                case _:
                    self._say("250 yes")

    def _mail(self) -> str:
        lines = []
        for line in self.rfile:
            if line.strip() == b".":
                break
            lines.append(line.decode().rstrip("\r\n"))
        return "\n".join(lines)

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("alertmanager")
    port = free_port()
    with Mail() as mail:
        threading.Thread(target=mail.serve_forever, daemon=True).start()
        with serving({"/topic": Reply()}) as ntfy, serving({"/hook": Reply()}) as hook:
            email = {
                **{"email": "you@example.org", "sender": "spark@example.org"},
                "smarthost": f"127.0.0.1:{mail.server_address[1]}",
                **{"user": "spark", "password": {"file": "password"}, "starttls": False},
            }
            token = {"ntfy": f"{ntfy.url}/topic", "token": {"file": "token"}}
            tell = (token, {"webhook": f"{hook.url}/hook"}, email)
            settings = spark(monitoring={"enabled": True, "tell": tell}).settings
            for name, secret in zip(credentials(settings), (TOKEN, PASSWORD), strict=True):
                (folder / name).write_text(secret)
            # A group that waits makes the tests slow.
            text = re.sub(r"(group_\w+): \w+s", r"\1: 1s", alertmanager_text(settings))
            (folder / "alertmanager.yml").write_text(text.replace(_CREDENTIALS, str(folder)))
            words = ["prometheus-alertmanager", f"--config.file={folder}/alertmanager.yml"]
            words += [f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address="]
            words += [f"--storage.path={folder}/data"]
            with (folder / "log").open("w") as log:
                process = subprocess.Popen(words, stdout=log, stderr=log)
            try:
                url = f"http://127.0.0.1:{port}/-/ready"
                until(lambda: ask(url).status == 200, (folder / "log").read_text())
                yield SimpleNamespace(
                    alertmanager=Alertmanager(port), ntfy=ntfy, hook=hook, mail=mail
                )
            finally:
                process.kill()
                process.wait(180)
                mail.shutdown()


def test_amtool_accepts_it_without_receivers(tmp_path: Path) -> None:
    settings = spark(monitoring={"enabled": True, "tell": ()}).settings
    (path,) = tools.write_files(tmp_path, {"alertmanager.yml": alertmanager_text(settings)})
    result = tools.run(["amtool", "check-config", path])
    assert result.returncode == 0 and "1 receivers" in result.stdout, result.stderr


def test_each_receiver_is_told_of_an_alert_and_of_its_end(site: Any) -> None:
    labels = {"alertname": "GpuHot", "instance": "spark1", "severity": "warning"}
    remedy = "Remedy. `lockstep help x gpuhot`."
    words = {"summary": "spark1: The GPU is hot.", "description": remedy}
    site.alertmanager.raise_alert(labels, words, "2099-01-01T00:00:00Z")
    until(lambda: site.ntfy.requests and site.hook.requests and site.mail.mails, "all are told")
    (first,) = site.ntfy.requests
    assert first.path == "/topic?template=alertmanager"
    assert first.headers["Authorization"] == f"Bearer {TOKEN}"
    (alert,) = json.loads(first.body)["alerts"]
    assert alert["annotations"] == words and alert["labels"]["instance"] == "spark1"
    assert "Authorization" not in site.hook.requests[0].headers
    assert site.mail.logins[0].split("\0")[1:] == ["spark", PASSWORD]
    mail = site.mail.mails[0]
    assert "Subject: spark1: The GPU is hot." in mail
    assert remedy in mail and "text/html" not in mail
    site.alertmanager.raise_alert(labels, words, "2020-01-01T00:00:00Z")
    until(
        lambda: len(site.mail.mails) == 2 and len(site.hook.requests) == 2,
        "all are told of its end",
    )
    assert "Subject: Over: spark1: The GPU is hot." in site.mail.mails[1]
    assert json.loads(site.hook.requests[1].body)["status"] == "resolved"


def test_a_test_says_of_each_receiver_whether_it_took_it(site: Any) -> None:
    def receiver_answer(receiver: str, way: str) -> str:
        return send_test_alert.send_to_receiver(site.alertmanager, "spark1", receiver, way)

    earlier_count = len(site.hook.requests)
    assert receiver_answer("1-ntfy", "webhook") == receiver_answer("3-email", "email") == ""
    assert "Nothing is wrong" in site.mail.mails[-1]
    # The others are not told of a test that is not theirs.
    assert len(site.hook.requests) == earlier_count
    site.hook.answers["/hook"] = Reply(status=403)
    assert receiver_answer("2-webhook", "webhook") == "it did not take the message"
    site.hook.answers["/hook"] = Reply()
    assert receiver_answer("2-webhook", "webhook") == ""


@pytest.mark.parametrize(
    ("source", "sent_names"),
    [("SwitchRunning", {"GatewayDown", "GpuSlow"}), ("DeployRunning", {"GpuSlow"})],
)
def test_a_job_keeps_alerts_back_until_it_ends(site: Any, source: str, sent_names: Any) -> None:
    alerts = {"HotModelGone": "model", "GatewayDown": "host", "GpuSlow": "gpu"}
    earlier_count = len(site.hook.requests)

    def raise_alert(name: str, ends: str = "2099-01-01T00:00:00Z", **labels: str) -> None:
        words = {"summary": f"spark1: {name}.", "description": "Look."}
        site.alertmanager.raise_alert(labels | {"alertname": name, "source": source}, words, ends)

    def alert_names() -> set[str]:
        bodies = [json.loads(request.body) for request in site.hook.requests[earlier_count:]]
        labels = [body["groupLabels"] for body in bodies]
        return {label["alertname"] for label in labels if label.get("source") == source}

    raise_alert(source, receiver="nobody")
    for name, subject in alerts.items():
        raise_alert(name, subject=subject)
    until(lambda: alert_names() >= sent_names, "the alerts that it does not keep back")
    time.sleep(3)
    assert alert_names() == sent_names
    raise_alert(source, "2020-01-01T00:00:00Z", receiver="nobody")
    until(lambda: alert_names() == alerts.keys(), "what is still wrong is told")
