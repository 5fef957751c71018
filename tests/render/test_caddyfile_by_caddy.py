"""The Caddyfile run by the real Caddy, in front of a stand-in of the gateway."""

import json
import os
import socket
import socketserver
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from a_spark import spark
from lab_servers import free_port, until
from tools import run

from lockstep.inventory.cluster_join import join_clusters
from lockstep.onhost.access import certificate_authority
from lockstep.onhost.gateway.configuration import TLS_SOCKET
from lockstep.units.tls_unit import CADDYFILE, ROOT, tls_files

TAILSCALE = "spark-1.tail1234.ts.net"
KEY = "lk-" + 43 * "k"


class Server(socketserver.ThreadingUnixStreamServer):
    """Serves at a socket, in a thread."""

    daemon_threads = True

    def __init__(self, path: Path, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(str(path), handler)
        self.arrival = threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Gateway(BaseHTTPRequestHandler):
    """Tells the request's headers; /stream gets its second part once the first has arrived."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self._chunk(json.dumps({name.lower(): value for name, value in self.headers.items()}))
        if self.path == "/stream":
            assert self.server.arrival.wait(180)
            self._chunk("the rest\n")
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, text: str) -> None:
        self.wfile.write(f"{len(text) + 1:x}\r\n{text}\n\r\n".encode())
        self.wfile.flush()

    def address_string(self) -> str:
        return "Caddy"

    def log_message(self, *_: object) -> None:
        pass


@dataclass
class Front:
    """A running Caddy; `root` is the authority that a client believes."""

    folder: Path
    port: int
    root: Path
    gateway: Server

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def curl(self, name: str, path: str = "/", *options: str) -> subprocess.CompletedProcess[str]:
        """The answer that curl gets by HTTP/2, with its version and status."""
        words = ["curl", "--silent", "--show-error", "--http2", "--max-time", "20"]
        words += ["--resolve", f"{name}:{self.port}:127.0.0.1", "--noproxy", "*"]
        words += ["--write-out", "%{http_version} %{http_code}", "--cacert", str(self.root)]
        words += [*options, f"https://{name}:{self.port}{path}"]
        return run(words)

    def connection(self, name: str, believing: bool = True) -> ssl.SSLSocket:
        context = ssl.create_default_context(cafile=str(self.root))
        if not believing:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=180)
        return context.wrap_socket(plain, server_hostname=name)


@contextmanager
def running(folder: Path, tls: object, *names: str, wrap: tuple[str, ...] = ()) -> Iterator[Front]:
    """Run Caddy with the deploy's file, with our own folders and address in it."""
    port = free_port()
    gateway_keys = {"bind": "10.0.0.1", "tls": tls, "tls_port": port, "names": names}
    (plan,) = join_clusters([spark("spark1", gateway=gateway_keys)], "site.py")
    text = next(file.text for file in tls_files(plan) if file.path == CADDYFILE)
    text = text.replace(ROOT, str(folder / "root.crt")).replace(TLS_SOCKET, str(folder / "socket"))
    (folder / "Caddyfile").write_text(text.replace("bind 10.0.0.1", "bind 127.0.0.1"))
    authority_text = certificate_authority.make_authority(
        plan.authority.names if plan.authority else ["spark1"], "spark1"
    )
    (folder / "authority").write_text(authority_text)
    (folder / "root.crt").write_text(certificate_authority.certificate_in_file_text(authority_text))
    gateway = Server(folder / "socket", Gateway)
    front = Front(folder, port, folder / "root.crt", gateway)
    home = folder / "run"
    home.mkdir()
    homes = ("RUNTIME_DIRECTORY", "HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
    environment = os.environ | dict.fromkeys(homes, str(home))
    environment |= {"CREDENTIALS_DIRECTORY": str(folder)}
    words = [*wrap, "caddy", "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]

    def is_up(name: str) -> bool:
        assert caddy.poll() is None, front.log.read_text()
        front.connection(name, believing=False).close()
        return True

    with front.log.open("w") as log:
        caddy = subprocess.Popen(words, env=environment, stdout=log, stderr=log)
    try:
        # Its certificates come a moment after its port.
        until(lambda: is_up(names[0] if tls == "tailscale" else "spark1"), "Caddy answers by TLS")
        yield front
    finally:
        caddy.terminate()
        caddy.wait(180)
        gateway.shutdown()
        gateway.server_close()


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """Run Caddy with an authority of ours."""
    with running(tmp_path_factory.mktemp("own"), "own", "www.example.org") as front:
        yield front


def test_a_client_that_believes_the_authority_is_answered_by_http_2_and_no_other_believes_it(
    own: Front, tmp_path: Path
) -> None:
    result = own.curl("spark1")
    assert (result.returncode, result.stdout.splitlines()[-1]) == (0, "2 200"), result.stderr
    other_authority = certificate_authority.make_authority(["spark1"], "spark1")
    path = tmp_path / "root.crt"
    path.write_text(certificate_authority.certificate_in_file_text(other_authority))
    assert own.curl("spark1", "/", "--cacert", str(path)).returncode == 60


def test_the_gateway_hears_who_asks_and_not_what_that_one_says_of_it(own: Front) -> None:
    result = own.curl("spark1", "/", "--header", "X-Forwarded-For: 6.6.6.6", "--header", "Via: me")
    headers = json.loads(result.stdout.splitlines()[0])
    assert headers["x-forwarded-for"] == "127.0.0.1"
    assert (headers["x-forwarded-proto"], headers["host"]) == ("https", f"spark1:{own.port}")


def test_a_stream_comes_as_it_is_made(own: Front) -> None:
    with own.connection("spark1") as client:
        client.sendall(b"GET /stream HTTP/1.1\r\nHost: spark1\r\nConnection: close\r\n\r\n")
        content = b""
        # Without this the gateway's stand-in does not go on.
        while b"x-forwarded-for" not in content:
            part = client.recv(4096)
            assert part, content
            content += part
        own.gateway.arrival.set()
        while part := client.recv(4096):
            content += part
    assert b"the rest" in content


def test_http_without_tls_is_refused_and_another_name_too(own: Front) -> None:
    plain = run(["curl", "--silent", "--noproxy", "*", f"http://127.0.0.1:{own.port}/"])
    assert "x-forwarded-for" not in plain.stdout and "HTTPS server" in plain.stdout
    assert own.curl("spark1", "/", "--header", "Host: other").stdout == "2 421"
    # A name that no certificate is for.
    assert own.curl("other").returncode == 35


def test_no_key_is_in_its_log_when_the_gateway_is_away(own: Front) -> None:
    (own.folder / "socket").rename(own.folder / "away")
    try:
        headers = ("--header", f"x-api-key: {KEY}", "--header", f"Authorization: Bearer {KEY}")
        assert own.curl("spark1", "/v1/models", *headers).stdout.endswith("2 502")
    finally:
        (own.folder / "away").rename(own.folder / "socket")
    log = own.log.read_text()
    assert "/v1/models" in log and "no such file" in log
    assert KEY not in log


def test_with_a_certificate_of_yours_every_name_that_it_has_is_served(tmp_path: Path) -> None:
    authority_text = certificate_authority.make_authority(["spark1"], "spark1")
    key, certificate = authority_text.split("-----BEGIN CERTIFICATE-----")
    (tmp_path / "key").write_text(key)
    (tmp_path / "certificate").write_text("-----BEGIN CERTIFICATE-----" + certificate)
    tls_paths = {"certificate": "/etc/ssl/spark.pem", "key": "/etc/ssl/spark.key"}
    with running(tmp_path, tls_paths) as front:
        for name in ("spark1", "gpu.example.com"):
            assert front.curl(name, "/", "--insecure").stdout.splitlines()[-1] == "2 200"


def test_tailscale_s_certificate_comes_from_its_daemon(tmp_path: Path) -> None:
    pair = certificate_authority.make_authority([TAILSCALE], TAILSCALE)

    class LocalApi(Gateway):
        """The part of tailscaled's local interface that gives a program the host's certificate."""

        def do_GET(self) -> None:
            status = json.dumps({"BackendState": "Running", "CertDomains": [TAILSCALE]})
            body = (status if "status" in self.path else pair).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    (tmp_path / "tailscale").mkdir()
    # Caddy knows one place for the daemon's socket.
    place = ("--tmpfs", "/run", "--bind", str(tmp_path / "tailscale"), "/run/tailscale")
    wrap = ("bwrap", "--die-with-parent", "--dev-bind", "/", "/", *place)
    with (
        Server(tmp_path / "tailscale/tailscaled.sock", LocalApi) as server,
        running(tmp_path, "tailscale", TAILSCALE, wrap=wrap) as front,
    ):
        with front.connection(TAILSCALE, believing=False) as client:
            certificate = ssl.DER_cert_to_PEM_cert(client.getpeercert(binary_form=True) or b"")
        assert certificate in pair
        assert front.curl(TAILSCALE, "/", "--insecure").stdout.splitlines()[-1] == "2 200"
        # Not its name: no certificate is made for it, and nobody on the internet is asked.
        assert front.curl("spark1", "/", "--insecure").returncode == 35
        server.shutdown()
