"""Programs that eve runs on a host."""

from __future__ import annotations

# Waits for a port of the host, and answers there as an engine would; prints what it is asked.
FAKE = r"""
import http.server, json, socket, sys, time
host, port = sys.argv[1], int(sys.argv[2])
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        print("EVE READS", self.command, self.path, self.headers.get("Authorization"), body[:200])
        choice = {"index": 0, "finish_reason": "stop", "text": "OK",
                  "message": {"role": "assistant", "content": "OK"}}
        text = json.dumps({"object": "list", "data": [{"id": "tiny"}], "choices": [choice],
                           "usage": {"prompt_tokens": 4, "completion_tokens": 32}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    do_POST = do_GET
    def log_message(self, *words): pass
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
    allow_reuse_port = True
    def server_bind(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = host, port
print("EVE WAITS")
while True:
    try:
        server = Server((host, port), Handler)
        break
    except OSError:
        time.sleep(0.005)
print("EVE HAS", port)
server.serve_forever()
"""

# Locks whatever its account can open, folders too, and holds it.
HOLD = r"""
import fcntl, os, resource, sys, time
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
held = []
def hold(path):
    if len(held) > min(most, 20000) - 50:
        return
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held.append(handle)
    except OSError:
        pass
first = True
while True:
    before = set() if first else seen
    seen = set(before)
    for root in sys.argv[1:]:
        for folder, folders, files in os.walk(root):
            folders[:] = [each for each in folders if each not in ("site-packages", "store")]
            for path in (folder, *(os.path.join(folder, each) for each in files)):
                if path not in seen:
                    seen.add(path)
                    hold(path)
    if first:
        print("EVE HOLDS", len(held))
        first = False
    time.sleep(0.2)
"""
