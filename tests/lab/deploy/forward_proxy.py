"""A forward proxy that writes down every requested address: python forward_proxy.py PORT LOG.

It opens no tunnels: no server of a lab has TLS.
"""

import contextlib
import http.client
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

#: Headers that are about one connection and not about the message (RFC 9110, 7.6.1).
HOP = {"connection", "proxy-connection", "keep-alive", "te", "trailer", "transfer-encoding"}


class Proxy(BaseHTTPRequestHandler):
    """Forwards one request at a time."""

    log: Path

    def do_GET(self) -> None:
        """Forward a request with an absolute address, and pass the answer on."""
        with self.log.open("a", encoding="utf-8") as log:
            log.write(f"{self.client_address[0]} {self.command} {self.path}\n")
        parts = urlsplit(self.path)
        if not parts.hostname:
            self.send_error(400, "a proxy is asked for whole addresses")
            return
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else None
        upstream = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=60)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        upstream.putrequest(self.command, target, skip_host=True, skip_accept_encoding=True)
        # One by one: a client may give a header such as Accept several times.
        for name, text in self.headers.items():
            if name.lower() not in HOP:
                upstream.putheader(name, text)
        upstream.endheaders(body)
        answer = upstream.getresponse()
        self.send_response(answer.status, answer.reason)
        for name, text in answer.getheaders():
            if name.lower() not in HOP:
                self.send_header(name, text)
        self.send_header("Connection", "close")
        self.end_headers()
        with contextlib.suppress(OSError):
            while chunk := answer.read(65536):
                self.wfile.write(chunk)
        self.close_connection = True

    do_HEAD = do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing; the log has the line."""


def main(argv: list[str]) -> None:
    """Serve until the process is ended."""
    Proxy.log = Path(argv[1])
    with ThreadingHTTPServer(("10.77.0.1", int(argv[0])), Proxy) as server:
        Proxy.log.touch()
        server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
