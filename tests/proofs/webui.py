"""Open WebUI of a host in a browser, as its operator opens it: through ssh, at a port of ours."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from browser import browser
from stack import Host
from webui_page import WebUI

from lab.host import connection
from lab.host.network import NAMESPACES

PORT = 8080
SECRETS = "/etc/lockstep/secrets/open-webui.env"


def network(host: Host) -> Path:
    """The network of the lab's control machine."""
    return Path(NAMESPACES / connection.load(host.lab).namespace)


@contextlib.contextmanager
def tunnel(host: Host, port: int) -> Iterator[None]:
    """`port` of the control machine's loopback leads to the host's."""
    forward = ["-o", "ExitOnForwardFailure=yes", "-L", f"127.0.0.1:{port}:127.0.0.1:{port}"]
    argv = connection.ssh_command(connection.load(host.lab), host.name, ["echo open; cat"])
    with subprocess.Popen(
        ["nsenter", f"--net={network(host)}", argv[0], *forward, *argv[1:]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as ssh:
        assert ssh.stdout and ssh.stdin
        assert ssh.stdout.readline() == "open\n", f"no tunnel to {host.name}"
        try:
            yield
        finally:
            ssh.stdin.close()


@contextlib.contextmanager
def signed_in(host: Host) -> Iterator[WebUI]:
    """The administrator of the host's secrets, in Chromium, at the loopback of the lab."""
    lines = host.root(f"cat {SECRETS}").splitlines()
    secrets = dict(line.split("=", 1) for line in lines if "=" in line)
    with browser(network(host)) as chromium:
        page = chromium.page(f"http://127.0.0.1:{PORT}/")
        yield WebUI(page, secrets["WEBUI_ADMIN_EMAIL"], secrets["WEBUI_ADMIN_PASSWORD"])
