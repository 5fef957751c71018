"""Asks the supervisor of a running lab."""

from __future__ import annotations

import json
import socket
from typing import Any

from lab.core.errors import LabError
from lab.core.state import Lab


def ask(lab: Lab, action: str, **details: Any) -> Any:
    """The supervisor's answer; ``LabError`` when it refuses or when there is none."""
    option = "" if lab.name == "lab" else f" --name {lab.name}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(str(lab.control_socket))
            connection.sendall(json.dumps({"action": action} | details).encode() + b"\n")
            answer = connection.makefile().readline()
        except PermissionError:
            raise LabError("the lab belongs to root", "Run the command with sudo.") from None
        except OSError:
            answer = ""
    if not answer:
        raise LabError(f"lab {lab.name!r} is not up", f"Run: lockstep lab up{option}")
    document = json.loads(answer)
    if not document["ok"]:
        raise LabError(document["error"], document["remedy"])
    return document["result"]
