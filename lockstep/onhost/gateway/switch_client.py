"""Client of the `gateway-switch` socket, for the gateway."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from lockstep.onhost.core import errors
from lockstep.onhost.systemd import transient_job

SOCKET = Path("/run/lockstep-gateway-switch.sock")
UNIT = "lockstep-gateway-switch.socket"
_LONGEST = 1 << 20  # A line of a switch is a few hundred characters.


async def request_switch(
    model: str, person: str | None, path: Path = SOCKET
) -> AsyncGenerator[dict[str, Any], None]:
    """Request a normal switch and yield its progress. Leaving early does not end the switch.

    `model` may be "none". `person` is None for the gateway itself.

    Yields:
        {"phase": "check", "stop", "gate", "load", "test_question", "done" or "failed", "line":
        text, "kind": that of the line} for each line, then {"code": exit code of switch.sh, "said":
        its last words, or why it failed}.
        Code 141: the display has ended, and the outcome of the switch is unknown.
    """
    try:
        reader, writer = await asyncio.open_unix_connection(path, limit=_LONGEST)
    except OSError as error:
        fault = f"no switch can be asked for: {path}: {errors.why(error)}"
        yield {"code": errors.EXIT_FAILED, "said": f"{fault}. Remedy: systemctl status {UNIT}"}
        return
    try:
        writer.write(json.dumps({"model": model, "person": person}).encode() + b"\n")
        async for line in reader:
            message = json.loads(line)
            yield message
            if "code" in message:
                return
    except (OSError, ValueError):
        pass
    finally:
        writer.close()
    fault = "the switch goes on, but its display has ended. Remedy: switch.sh wait"
    yield {"code": transient_job.EXIT_ALONE, "said": fault}
