"""Copies between the Sparks of one deploy: from before the first download to the last."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyinfra import host
from pyinfra.api import operation

from lockstep.files.managed_file import command
from lockstep.tasks.run import remote_commands
from lockstep.tasks.run.remote_commands import Commands

SHARING = command("sharing")


@operation()
def serve_peers(lease: Mapping[str, Any] | None, stale: Sequence[str] = ()) -> Commands:
    """Start to give this host's content to its peers, for as long as this deploy lasts.

    Args:
        lease: As `lockstep.deploy.copying.leases` gives it; None: nothing is to be copied.
        stale: Leases of other deploys, killed ones, that this host must not use; its downloads
            would be copied with them.
    """
    for stale_id in stale:
        yield remote_commands.changing_command([*SHARING, "close", stale_id])
    if lease is None and stale:
        return
    if lease is None:
        host.noop("nothing is to be copied")
        return
    # The token goes through standard input, never through argv.
    document = json.dumps(lease)
    yield remote_commands.changing_command([*SHARING, "open"], _stdin=[document])


@operation()
def stop_serving_peers(lease: Mapping[str, Any] | None, stale: Sequence[str] = ()) -> Commands:
    """Stop the copies, on this host and on hosts that this deploy has lost.

    Args:
        lease: As for `serve_peers`.
        stale: Leases of deploys that never came to this step; their server would go on listening.
    """
    lease_ids = [*([lease["id"]] if lease else []), *stale]
    for lease_id in lease_ids:
        yield remote_commands.changing_command([*SHARING, "close", lease_id])
    if not lease_ids:
        host.noop("nothing was copied")
