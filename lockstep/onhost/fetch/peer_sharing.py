"""Let this Spark and the other Sparks of one deploy copy from each other until it is over.

usage: sharing open      (the lease as JSON on standard input)
       sharing close ID

The lease: {"id", "token", "address", "port", "user", "peers": [{"name", "address", "port",
"earlier"}], "expects": {CLAIM: [HASH]}, "hub", "flat"}. The token stays in a file that only `user`
reads; the server knows its hash alone. `close` tells every peer that the deploy is over, also those
that the deploy has lost meanwhile. Failing to share is no error: content then comes from its
origin, and one line says why.

exit codes: 0 shared, or told why not; 2 wrong use
"""

from __future__ import annotations

import json
import os
import pwd
import re
import socket
import sys
import time
from hashlib import sha256
from typing import Any

from lockstep.onhost.core import (
    atomic_files,
    errors,
    event_lines,
    layout,
    program_command_lines,
    runner,
)
from lockstep.onhost.core.address_text import address_with_port
from lockstep.onhost.fetch import announced_fetches, peer_client
from lockstep.onhost.systemd import units

UNIT = "lockstep-peer.service"
#: The server always ends after this; a deploy that runs after a day fetches from the origin.
LIFE_S = 24 * 3600
IDLE_S = 1800
_ID = re.compile(r"[0-9a-f]{8,64}")
# The server reads files that everybody may read and answers on one port, and needs no more.
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
    # A hot model keeps its cores, and when memory is short, this server goes first.
    "CPUWeight=20",
    "IOWeight=20",
    "OOMScoreAdjust=900",
)


def open_lease(document: dict[str, Any], paths: layout.Paths) -> None:
    """Write the lease for clients and server, and make sure that the server runs."""
    folder, offers_folder = peer_client.folder_of_leases(paths), peer_client.folder_of_offers(paths)
    account = pwd.getpwnam(document["user"])
    # The server, under another account, has the inner folders mounted.
    for target_path, owner, mode in (
        (folder, 0, 0o750),
        (offers_folder, 0, 0o755),
        (announced_fetches.claims_folder(paths), account.pw_uid, 0o755),
    ):
        target_path.mkdir(parents=True, exist_ok=True)
        os.chown(target_path, owner, account.pw_gid)
        target_path.chmod(mode)
    running = units.units_by_name([UNIT])[UNIT].up
    if not running:
        _remove_past_leases(paths)
    token = str(document["token"])
    offer = {"accepts": sha256(token.encode()).hexdigest(), "expects": document["expects"]}
    client = {"token": token, "peers": document["peers"]}
    lease = document["id"]
    path = folder / f"{lease}.client.json"
    atomic_files.write_json(path, client, mode=0o600, owner=(account.pw_uid, account.pw_gid))
    atomic_files.write_json(offers_folder / f"{lease}.offer.json", offer)
    if not running:
        _start_server(document, paths)


def _remove_past_leases(paths: layout.Paths) -> None:
    """Remove the files of past deploys, their claims included; a held claim stays."""
    for path in peer_client.folder_of_leases(paths).rglob("*.json"):
        path.unlink(missing_ok=True)
    for path in announced_fetches.claims_folder(paths).glob("*"):
        if not announced_fetches.is_held(path):
            path.unlink(missing_ok=True)


def _start_server(document: dict[str, Any], paths: layout.Paths) -> None:
    target_path = peer_client.folder_of_offers(paths)
    address, port = str(document["address"]), int(document["port"])
    argv = ["systemd-run", "--quiet", "--no-ask-password", "--collect", f"--unit={UNIT}"]
    argv += ["--description=Lockstep: gives content to the other Sparks of a deploy"]
    # The server sees only its own part of /run/lockstep; otherwise only root and the account that
    # fetches may see that part.
    mount_options = (f"TemporaryFileSystem={paths.run}:ro", f"BindReadOnlyPaths={target_path}")
    argv += [f"--property={value}" for value in (*_PROPERTIES, *mount_options)]
    argv += [
        "--",
        *program_command_lines.command("peer-server", "--address", address, "--port", str(port)),
    ]
    argv += ["--hub", document["hub"], "--folder", str(target_path), "--idle", str(IDLE_S)]
    argv += [word for path in document["flat"] for word in ("--flat", path)]
    result = runner.run(argv, timeout=60)
    if result.returncode != 0:
        raise errors.Problem(f"{UNIT} does not start: {result.stderr.strip()}")
    deadline = time.monotonic() + 20
    while not _is_server_answering(address, port):
        if time.monotonic() > deadline or not units.units_by_name([UNIT])[UNIT].up:
            raise errors.Problem(
                f"{UNIT} does not listen at {address_with_port(address, port)} "
                f"(journalctl -u {UNIT}). Remedy: set fabric_address to an address of "
                "this host, or another copy_port"
            )
        time.sleep(0.05)


def _is_server_answering(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=2).close()
    except OSError:
        return False
    return True


def close_lease(lease_id: str, paths: layout.Paths) -> None:
    """End the sharing of one deploy on this host and on every peer."""
    folder, target_path = peer_client.folder_of_leases(paths), peer_client.folder_of_offers(paths)
    lease = peer_client.newest_lease(paths, lease_id)
    if lease is None:
        return
    peer_client.announce_end_to_peers(lease)
    (folder / f"{lease_id}.client.json").unlink(missing_ok=True)
    (target_path / f"{lease_id}.offer.json").unlink(missing_ok=True)
    if not list(target_path.glob("*.offer.json")):
        units.try_to_control("stop", UNIT)


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Run the command line; see the module's docstring."""
    paths = paths or layout.Paths()
    is_known = argv == ["open"] or (
        len(argv) == 2 and argv[0] == "close" and _ID.fullmatch(argv[1])
    )
    if not is_known:
        return program_command_lines.print_usage(__doc__)
    try:
        if argv[0] == "open":
            open_lease(json.load(sys.stdin), paths)
        else:
            close_lease(argv[1], paths)
    except (errors.Problem, OSError, KeyError) as error:
        event_lines.say(f"sharing: not with this host: {error}. Content comes from its origin")
    return errors.EXIT_DONE
