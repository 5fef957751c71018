"""The speed of a copy from one Spark to another, beside plain rsync and the link itself.

`.venv/bin/python -m benchmarks.copy [LAB]`, with a lab deployed (`make deploy`). Files in memory
on the first host are brought to the second in three ways. The ways take turns in one run, so that
the ratios hold on a machine whose speed drifts. They are: bytes over a bare TCP connection, thrown
away (the link); rsync from a daemon without encryption; Lockstep's copy, several files at a time
and checked by hash. The lab's link is two cores of this machine; a Spark's 200 Gb/s link is not in
these figures.
"""

from __future__ import annotations

import json
import shlex
import statistics
import sys
from collections.abc import Callable

from lab.host import connection
from lockstep.files.managed_file import PROGRAMS, PYTHON, command

RUNS = 5
FILES, FILE_MIB = 4, 128
WORKERS = 4
FOLDER = "/dev/shm/lockstep-bench"
#: `copy_port`, which the firewall opens to the other hosts; the ways use it one at a time.
PORT = 7077
WAYS = ("link", "rsync", "copy")
TOKEN = "benchmark" * 5
UNIT = "lockstep-bench"

_PREPARE = """
import hashlib, json, os, pathlib, sys
folder, files, mib, token = json.loads(sys.argv[1])
root = pathlib.Path(folder)
(root / "data").mkdir(parents=True)
(root / "run/claims").mkdir(parents=True)
names = []
for _ in range(files):
    body = os.urandom(mib << 20)
    names.append(hashlib.sha256(body).hexdigest())
    (root / "data" / names[-1]).write_bytes(body)
offer = {"accepts": hashlib.sha256(token.encode()).hexdigest(), "expects": {}}
(root / "run/1.offer.json").write_text(json.dumps(offer))
(root / "rsyncd.conf").write_text(f"use chroot = no\\n[data]\\npath = {root}/data\\n")
print(json.dumps(names))
"""
_SENDER = """
import os, pathlib, socket, sys
with socket.create_server(("", int(sys.argv[2]))) as server:
    while True:
        peer, _ = server.accept()
        with peer:
            for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
                with path.open("rb") as file:
                    peer.sendfile(file)
"""
# This runs on the second host and imports the deploy's package from its place there.
_RECEIVE = (
    f"programs = {PROGRAMS!r}"
    + """
import json, shutil, socket, subprocess, sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
sys.path.insert(0, programs)
from lockstep.onhost.fetch import peer_client
way, folder, port, address, names, size, token, workers = json.loads(sys.argv[1])
target = Path(folder)
def link():
    buffer = memoryview(bytearray(4 << 20))
    with socket.create_connection((address, port)) as peer:
        while peer.recv_into(buffer):
            pass
def rsync():
    source = f"rsync://{address}:{port}/data/"
    subprocess.run(["rsync", "--recursive", "--whole-file", source, str(target)], check=True)
def copy():
    lease = peer_client.Lease(token, (peer_client.Peer("first", address, port, False),))
    copier = peer_client.Copier(lease)
    with ThreadPoolExecutor(workers) as pool:
        assert all(pool.map(lambda name: copier.copy_from_peer(name, size, target / name), names))
target.mkdir()
began = time.perf_counter()
{"link": link, "rsync": rsync, "copy": copy}[way]()
print(time.perf_counter() - began)
shutil.rmtree(target)
"""
)


def main() -> int:
    """Print MB/s of each way and the ratios."""
    lab = connection.load(sys.argv[1] if len(sys.argv) > 1 else None)
    first, second = lab.hosts[:2]

    def root(host: str, *argv: str, check: bool = True) -> str:
        result = connection.run_on(lab, host, [shlex.join(("sudo", "-n", *argv))])
        if check and result.returncode != 0:
            sys.exit(f"{host}: {argv[0]} ended with {result.returncode}:\n{result.stderr[-2000:]}")
        return result.stdout

    prepare = json.dumps([FOLDER, FILES, FILE_MIB, TOKEN])
    try:
        names = json.loads(root(first.name, "python3", "-c", _PREPARE, prepare))
        common = [FOLDER, PORT, first.address, names, FILE_MIB << 20, TOKEN, WORKERS]
        durations: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(RUNS):
            for way in WAYS:
                _serve(root, first.name, first.address, way)
                request = json.dumps([way, *common])
                durations[way].append(float(root(second.name, "python3", "-c", _RECEIVE, request)))
                root(first.name, "systemctl", "stop", UNIT)
    finally:
        root(first.name, "systemctl", "stop", UNIT, check=False)
        for host in (first, second):
            root(host.name, "rm", "-rf", FOLDER)
    total = FILES * FILE_MIB * 1.048576
    speed = {name: total / statistics.median(times) for name, times in durations.items()}
    print(f"{FILES} files of {FILE_MIB} MiB, median of {RUNS} runs")
    for name, text in (
        ("link", "the link: bare TCP, nothing kept"),
        ("rsync", "rsync, no encryption, whole files"),
        ("copy", f"lockstep, {WORKERS} files at a time, checked by SHA-256"),
    ):
        ratio = speed["copy"] / speed[name]
        print(f"{text:50} {speed[name]:7.0f} MB/s   lockstep is {ratio:4.2f} of it")
    return 0


def _serve(root: Callable[..., str], host: str, address: str, way: str) -> None:
    """Start the sending side of one way on the first host, as a transient unit."""
    programs = {
        "link": [PYTHON, "-c", _SENDER, f"{FOLDER}/data", str(PORT)],
        "rsync": [
            *("/usr/bin/rsync", "--daemon", "--no-detach", f"--config={FOLDER}/rsyncd.conf"),
            f"--port={PORT}",
        ],
        "copy": [
            *command("peer-server"),
            *("--address", address, "--port", str(PORT), "--hub", "/nonexistent"),
            *("--folder", f"{FOLDER}/run", "--flat", f"{FOLDER}/data"),
        ],
    }
    root(host, "systemd-run", "--quiet", "--collect", f"--unit={UNIT}", "--", *programs[way])
    ready = f"until ss -Hltn 'sport = :{PORT}' | grep -q .; do sleep 0.1; done"
    root(host, "timeout", "20", "sh", "-c", ready)


if __name__ == "__main__":
    sys.exit(main())
