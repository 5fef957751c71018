"""Let this Spark copy from the other Sparks of one deploy, and them from it, until it is over.

usage: sharing open      (the lease as JSON on standard input)
       sharing close ID

The lease: {"id", "token", "address", "port", "user", "peers": [{"name", "address", "port",
"earlier"}], "expects": {CLAIM: [HASH]}, "hub", "flat"}. The token stays in a file that only `user`
reads; the server knows its hash alone. `close` tells every peer that the deploy is over, also those
that the deploy has lost meanwhile. Not being able to share is no failure: content then comes from
where it always did, and one line says why.

exit codes: 0 shared, or told why not; 2 wrong use
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import socket
import sys
import time
from hashlib import sha256
from typing import Any

from lockstep.onhost.core import atomic, errors, layout, output, program, runner
from lockstep.onhost.core.address import at
from lockstep.onhost.fetch import claims, peer_client
from lockstep.onhost.systemd import units

UNIT = "lockstep-peer.service"
#: Ends whatever happens; a deploy that is still at it after a day fetches from the origin.
LIFE_S = 24 * 3600
IDLE_S = 1800
_ID = re.compile(r"[0-9a-f]{8,64}")
# Reads files that everybody may read and answers on one port: it needs nothing else.
_PROPERTIES = (
    "Type=exec",
    f"RuntimeMaxSec={LIFE_S}",
    "DynamicUser=yes",
    "CapabilityBoundingSet=",
    "NoNewPrivileges=yes",
    "ProtectSystem=strict",
    "ProtectHome=read-only",
    "ProtectProc=invisible",
    "ProcSubset=pid",
    "ProtectClock=yes",
    "ProtectControlGroups=yes",
    "ProtectHostname=yes",
    "ProtectKernelLogs=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelTunables=yes",
    "PrivateDevices=yes",
    "PrivateTmp=yes",
    "RestrictAddressFamilies=AF_INET AF_INET6",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "LockPersonality=yes",
    "MemoryDenyWriteExecute=yes",
    "SystemCallArchitectures=native",
    "SystemCallFilter=@system-service",
    "UMask=0077",
    # A model that is hot keeps its cores, and whatever is short of memory, this goes first.
    "CPUWeight=20",
    "IOWeight=20",
    "OOMScoreAdjust=900",
)


def opened(document: dict[str, Any], paths: layout.Paths) -> None:
    """Write the lease for clients and server, and see that the server runs."""
    folder, shown = peer_client.folder(paths), peer_client.offers(paths)
    account = pwd.getpwnam(document["user"])
    # The server, of another account, has the inner ones mounted.
    for each, owner, mode in (
        (folder, 0, 0o750),
        (shown, 0, 0o755),
        (claims.folder(paths), account.pw_uid, 0o755),
    ):
        each.mkdir(parents=True, exist_ok=True)
        os.chown(each, owner, account.pw_gid)
        each.chmod(mode)
    running = units.show([UNIT])[UNIT].up
    if not running:
        _forget(paths)
    token = str(document["token"])
    offer = {"accepts": sha256(token.encode()).hexdigest(), "expects": document["expects"]}
    client = {"token": token, "peers": document["peers"]}
    lease = document["id"]
    path = folder / f"{lease}.client.json"
    atomic.write_json(path, client, mode=0o600, owner=(account.pw_uid, account.pw_gid))
    atomic.write_json(shown / f"{lease}.offer.json", offer)
    if not running:
        _start(document, paths)


def _forget(paths: layout.Paths) -> None:
    """Remove what deploys of the past left, their claims included; a claim that is held stays."""
    for path in peer_client.folder(paths).rglob("*.json"):
        path.unlink(missing_ok=True)
    for path in claims.folder(paths).glob("*"):
        if not claims.alive(path):
            path.unlink(missing_ok=True)


def _start(document: dict[str, Any], paths: layout.Paths) -> None:
    shown = peer_client.offers(paths)
    address, port = str(document["address"]), int(document["port"])
    argv = ["systemd-run", "--quiet", "--no-ask-password", "--collect", f"--unit={UNIT}"]
    argv += ["--description=Lockstep: gives content to the other Sparks of a deploy"]
    # Of /run/lockstep it has what it gives, and nobody else but root and who fetches has that.
    seen = (f"TemporaryFileSystem={paths.run}:ro", f"BindReadOnlyPaths={shown}")
    argv += [f"--property={value}" for value in (*_PROPERTIES, *seen)]
    argv += ["--", *program.command("peer-server", "--address", address, "--port", str(port))]
    argv += ["--hub", document["hub"], "--folder", str(shown), "--idle", str(IDLE_S)]
    argv += [word for path in document["flat"] for word in ("--flat", path)]
    done = runner.run(argv, timeout=60)
    if done.returncode != 0:
        raise errors.Problem(f"{UNIT} does not start: {done.stderr.strip()}")
    deadline = time.monotonic() + 20
    while not _answers(address, port):
        if time.monotonic() > deadline or not units.show([UNIT])[UNIT].up:
            raise errors.Problem(
                f"{UNIT} does not listen at {at(address, port)} (journalctl -u {UNIT}). "
                "Remedy: set fabric_address to an address of this host, or another copy_port"
            )
        time.sleep(0.05)


def _answers(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=2).close()
    except OSError:
        return False
    return True


def closed(lease_id: str, paths: layout.Paths) -> None:
    """End the sharing of one deploy on this host and on every peer."""
    folder, shown = peer_client.folder(paths), peer_client.offers(paths)
    lease = peer_client.lease(paths, lease_id)
    if lease is None:
        return
    peer_client.end(lease)
    (folder / f"{lease_id}.client.json").unlink(missing_ok=True)
    (shown / f"{lease_id}.offer.json").unlink(missing_ok=True)
    if not list(shown.glob("*.offer.json")):
        with contextlib.suppress(errors.Problem):
            runner.run(["systemctl", "stop", UNIT])


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Command line; see the module's docstring."""
    paths = paths or layout.Paths()
    known = argv == ["open"] or (len(argv) == 2 and argv[0] == "close" and _ID.fullmatch(argv[1]))
    if not known:
        return program.usage(__doc__)
    try:
        if argv[0] == "open":
            opened(json.load(sys.stdin), paths)
        else:
            closed(argv[1], paths)
    except (errors.Problem, OSError, KeyError) as error:
        output.say(f"sharing: not with this host: {error}. Content comes from its origin")
    return errors.EXIT_DONE
