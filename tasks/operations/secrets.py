"""Keys that are made on the host and never leave it."""

from __future__ import annotations

from collections.abc import Generator

from pyinfra import host
from pyinfra.api import StringCommand, operation

from lockstep.managed import WEBUI_SECRETS
from tasks import remote
from tasks.facts.host import Files


@operation()
def webui(email: str) -> Generator[StringCommand, None, None]:
    """Make Open WebUI's secret key and administrator once, in a file of mode 0600.

    The values are drawn on the host; only the file's mode and owner are ever read back.

    Args:
        email: The administrator's login.
    """
    found = host.get_fact(Files, asked={"paths": [WEBUI_SECRETS], "private": [WEBUI_SECRETS]})
    have = found[WEBUI_SECRETS] if found else None
    if have and (have["mode"], have["owner"]) == ("0600", "root"):
        host.noop("Open WebUI has its keys")
        return
    yield remote.words([remote.PYTHON, f"{remote.PROGRAMS}/make_secrets.py", WEBUI_SECRETS, email])
