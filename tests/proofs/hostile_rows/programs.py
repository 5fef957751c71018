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

# Sends requests as they are, and meanwhile asks for /health again and again.
ASK = r"""
import json, re, socket, sys, threading, time
asked = json.loads(sys.argv[1])
def made(part):
    if isinstance(part, str):
        return part.encode("latin-1")
    unit, count = part
    if "%d" in unit:
        return "".join(unit % n for n in range(count)).encode("latin-1")
    return unit.encode("latin-1") * count
body = b"".join(map(made, asked["body"]))
head = b"".join(map(made, asked["head"])).replace(b"LENGTH", str(len(body)).encode())
worst, failed, over = 0.0, 0, threading.Event()
def watch():
    global worst, failed
    while not over.wait(0.2):
        began = time.monotonic()
        try:
            with socket.create_connection(("127.0.0.1", 8090), 60) as each:
                each.settimeout(60)
                each.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
                             b"Connection: close\r\n\r\n")
                if not each.recv(100).startswith(b"HTTP/1.1 "):
                    failed += 1
        except OSError:
            failed += 1
        worst = max(worst, time.monotonic() - began)
watching = threading.Thread(target=watch)
watching.start()
opened, statuses, most = [], {}, 0
for _ in range(asked["times"]):
    each = socket.create_connection(("127.0.0.1", asked["port"]), 60)
    each.settimeout(30)
    opened.append(each)
    try:
        each.sendall(head + body)
        if asked["half"]:
            each.shutdown(socket.SHUT_WR)
    except OSError:
        pass
end = time.monotonic() + asked["wait"]
for each in opened:
    data = b""
    while True:
        each.settimeout(1.5 if data else max(0.1, end - time.monotonic()))
        try:
            more = each.recv(65536)
        except OSError as error:
            more = b""
            if not data:
                data = b"HTTP/1.1 000" if isinstance(error, TimeoutError) else b"HTTP/1.1 001"
        if not more:
            break
        data += more
    found = re.findall(rb"HTTP/1\.[01] (\d\d\d)", data)
    most = max(most, len(found))
    for status in found or [b"001"]:
        statuses[status.decode()] = statuses.get(status.decode(), 0) + 1
over.set()
watching.join()
print(json.dumps({"statuses": statuses, "most": most, "worst": round(worst, 1), "failed": failed}))
"""

UNFINISHED = r"""
import socket, sys, time
opened = []
for _ in range(2100):
    try:
        each = socket.create_connection(("127.0.0.1", 8090), 10)
        each.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                     b"Content-Type: application/json\r\nContent-Length: 900\r\n\r\n{")
        opened.append(each)
    except OSError:
        pass
print("EVE HOLDS", len(opened))
cut = 0
for each in opened:
    each.settimeout(120)
    try:
        cut += each.recv(20).startswith(b"HTTP/1.1 ")
    except OSError:
        pass
print("EVE IS CUT", cut)
time.sleep(600)
"""
