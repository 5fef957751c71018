"""Preflight: keys that a host is to take over from one that is no part of this run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from lockstep.core.findings import Finding
from lockstep.host.shared_keys import SharedKey


def findings(
    host: str,
    keys: Sequence[SharedKey],
    files: Mapping[str, Any],
    run: Collection[str],
) -> Iterator[Finding]:
    """One finding for each key that this host lacks and nobody of the run can give.

    Args:
        host: Its name.
        keys: The keys that it has in common with other hosts.
        files: What its reader `files` answered.
        run: The hosts that are deployed to.
    """
    for key in keys:
        if key.hosts[0] not in run and key.seal(host, files) is None:
            yield Finding(
                "key-elsewhere",
                "error",
                host,
                f"the {key.what} is to come from {key.hosts[0]}, which is not part of this run",
                f"Deploy to {', '.join(key.hosts)} together, this once.",
            )
