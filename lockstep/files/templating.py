"""The rendering of `templates/` with Jinja2; a missing value is an error."""

from __future__ import annotations

import shlex
from functools import cache
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError, UndefinedError

from lockstep.core import product
from lockstep.core.errors import LockstepError
from lockstep.files import systemd_quoting
from lockstep.files.managed_file import MARK

FOLDER = product.TEMPLATES


def render_template(template: str, **values: Any) -> str:
    """Return the text of ``templates/<template>`` with these values.

    Raises:
        LockstepError: the template needs a value that is missing, or is not a template.
    """
    try:
        return environment().get_template(template).render(mark=MARK, **values)
    except UndefinedError as fault:
        raise LockstepError(
            "a template value is missing",
            where=f"templates/{template}",
            found=str(fault.message),
            allowed=", ".join(sorted(values)),
        ) from fault
    except TemplateError as fault:
        raise LockstepError(
            "the template is not usable", where=f"templates/{template}", found=str(fault)
        ) from fault


@cache
def environment() -> Environment:
    """Return the Jinja2 environment of `templates/`, with quoting filters; it is kept compiled."""
    jinja = Environment(
        loader=FileSystemLoader(FOLDER),
        undefined=StrictUndefined,
        # Escaping would damage units and scripts.
        autoescape=lambda name: bool(name and name.endswith(".html.j2")),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    jinja.filters |= {
        "unit_path": systemd_quoting.quoted_path,
        "unit_text": systemd_quoting.free_text,
        "unit_command": systemd_quoting.command_on_lines,
        "unit_words": systemd_quoting.command_on_one_line,
        "environment_value": systemd_quoting.environment_value,
        "shell": shlex.quote,
        "shell_lines": _shell_lines,
    }
    jinja.globals["assignment"] = systemd_quoting.assignment
    return jinja


def _shell_lines(argv: tuple[str, ...], first_argument: str | None = None) -> str:
    """Return a command line for a shell script, one flag with its values per line."""
    return " \\\n  ".join(
        shlex.join(line) for line in systemd_quoting.split_before_flags(argv, first_argument)
    )
