"""Copying between the Sparks of one deploy: starts before the first download, ends with it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyinfra import host
from pyinfra.api import operation

from lockstep.files.managed_file import command
from lockstep.tasks import remote
from lockstep.tasks.remote import Commands

SHARING = command("sharing")


@operation()
def opened(lease: Mapping[str, Any] | None, stale: Sequence[str] = ()) -> Commands:
    """Start what gives this host's content to its peers, for as long as this deploy lasts.

    Args:
        lease: As `lockstep.deploy.copying.leases` gives it; None: nothing is to be copied.
        stale: Leases of other deploys, killed ones, that this host must not use; what it fetches
            would be copied with them.
    """
    for each in stale:
        yield remote.words([*SHARING, "close", each])
    if lease is None and stale:
        return
    if lease is None:
        host.noop("nothing is to be copied")
        return
    # The token goes through standard input, never through argv.
    document = json.dumps(lease)
    yield remote.words([*SHARING, "open"], _stdin=[document])


@operation()
def closed(lease: Mapping[str, Any] | None, stale: Sequence[str] = ()) -> Commands:
    """Stop it, on this host and on those that this deploy has lost.

    Args:
        lease: As for `opened`.
        stale: Leases of deploys that never came to this step; their server would go on listening.
    """
    ended = [*([lease["id"]] if lease else []), *stale]
    for each in ended:
        yield remote.words([*SHARING, "close", each])
    if not ended:
        host.noop("nothing was copied")
