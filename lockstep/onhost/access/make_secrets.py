"""Make Open WebUI's secret key and administrator, or the API key of engines, once.

usage: make-secrets FILE [EMAIL]

With EMAIL, the administrator's login, FILE is Open WebUI's; an empty one makes no administrator.
Without EMAIL it holds one key. An existing file keeps its values and gets mode 0600 again. A link
is replaced. Prints no value.

exit codes: 0 the file is there, 1 it cannot be written, 2 wrong use
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from lockstep.onhost.core import atomic_files, errors, event_lines


def new_webui_secrets(email: str) -> str:
    """Return new values, in the form that `docker run --env-file` reads."""
    lines = {"WEBUI_SECRET_KEY": secrets.token_urlsafe(32)}
    if email:
        lines |= {
            "WEBUI_ADMIN_NAME": "Administrator",
            "WEBUI_ADMIN_EMAIL": email,
            "WEBUI_ADMIN_PASSWORD": secrets.token_urlsafe(18),
        }
    return "".join(f"{name}={value}\n" for name, value in lines.items())


def new_api_key() -> str:
    """Return a new key, alone on its line."""
    return f"sk-{secrets.token_urlsafe(32)}\n"


def make_secret_file(path: Path, contents: Callable[[], str]) -> bool:
    """Make the file with its mode if it is missing; tell whether it is new."""
    if path.is_file() and not path.is_symlink():
        path.chmod(0o600)
        os.chown(path, 0, 0)
        return False
    atomic_files.write(path, contents(), mode=0o600)
    return True


def main(argv: list[str]) -> int:
    """Run the command line; see the module's docstring."""
    if len(argv) not in (1, 2) or argv[0].startswith("-"):
        print((__doc__ or "").strip(), file=sys.stderr)
        return errors.EXIT_USAGE
    path, *emails = argv
    try:
        new = make_secret_file(
            Path(path), partial(new_webui_secrets, *emails) if emails else new_api_key
        )
    except OSError as error:
        raise errors.Problem(f"{error.filename2 or error.filename}: {error.strerror}") from error
    if new:
        administrator = "".join(f"; the administrator is {name}" for name in emails if name)
        event_lines.say(f"made {path}{administrator}")
    return errors.EXIT_DONE
