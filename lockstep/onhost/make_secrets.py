#!/usr/bin/python3
"""Make Open WebUI's secret key and administrator, once.

usage: make_secrets.py FILE EMAIL

An existing file keeps its values and gets mode 0600 again. Prints no value.

exit codes: 0 the file is there, 1 it cannot be written, 2 wrong use
"""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lockstep.onhost import common
else:
    import common


def text(email: str) -> str:
    """New values, in the form that `docker run --env-file` reads."""
    lines = {
        "WEBUI_SECRET_KEY": secrets.token_urlsafe(32),
        "WEBUI_ADMIN_NAME": "Administrator",
        "WEBUI_ADMIN_EMAIL": email,
        "WEBUI_ADMIN_PASSWORD": secrets.token_urlsafe(18),
    }
    return "".join(f"{name}={value}\n" for name, value in lines.items())


def make(path: Path, email: str) -> None:
    """The file with its mode; values that are there stay."""
    if path.exists():
        path.chmod(0o600)
        os.chown(path, 0, 0)
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_suffix(".partial")
    temporary.unlink(missing_ok=True)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as out:
        out.write(text(email))
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(path)
    common.say(f"made {path}; the administrator is {email}")


def main(argv: list[str]) -> int:
    """Command line; see the module's docstring."""
    if len(argv) != 2:
        print((__doc__ or "").strip(), file=sys.stderr)
        return common.EXIT_USAGE
    path, email = Path(argv[0]), argv[1]
    try:
        make(path, email)
    except OSError as error:
        raise common.Problem(f"{error.filename}: {error.strerror}") from error
    return common.EXIT_DONE


if __name__ == "__main__":
    sys.exit(common.ended("make_secrets", lambda: main(sys.argv[1:])))
