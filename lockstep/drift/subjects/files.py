"""Drift of what no deploy writes: the record, entries of secrets, the token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lockstep.files.managed_file import (
    WEBUI_SECRETS,
)
from lockstep.files.remote_exec import Reader
from lockstep.host.desired_state import DesiredState
from lockstep.onhost.facts import deploy_records, files
from lockstep.resources.fact_comparison import DriftRow, Expectation, Facts, Kind, SubjectView
from lockstep.system.folders import HUB_TOKEN

_ENTRIES = ("WEBUI_SECRET_KEY", "WEBUI_ADMIN_EMAIL", "WEBUI_ADMIN_PASSWORD")
#: The kind of the one fact that matters on a host without a deploy.
DEPLOYED = "Lockstep"


def _token_mode(row: DriftRow) -> tuple[str, ...]:
    """Return the command that lets only the service account read the token."""
    mode, _, owner = (row.expected or "").partition(" ")
    return ("sh", "-c", 'chown "$1" "$0" && chmod "$2" "$0"', row.item, owner, mode)


KINDS = {
    DEPLOYED: Kind(
        deploy_records.generation_and_accepted_speeds, "error", "deploy", scope="nothing"
    ),
    # The next deploy makes a new file.
    "secret entry": Kind(files.secrets, "error", mend="rm {first}", scope="nothing"),
    "hub token": Kind(files.secrets, "note", is_sealed=True),
    "hub token mode": Kind(files.secrets, "error", mend=_token_mode, scope="nothing"),
}


def questions(desired_state: DesiredState) -> dict[Reader, dict[str, Any]]:
    """See `subjects.questions`."""
    return {
        files.secrets: {"entries": _entries(desired_state), "token": HUB_TOKEN},
    }


def is_deployed_to(facts: Facts) -> bool:
    """Tell whether a deploy ended well there; files alone may come from one that was cut off."""
    return "number" in facts.get("deployed", {})


def expectations(desired_state: DesiredState, host_view: SubjectView) -> Iterator[Expectation]:
    """See `subjects.all_expectations`."""
    settings = desired_state.plan.settings
    for path in _entries(desired_state):
        for name in _ENTRIES:
            yield Expectation("secret entry", f"{path} {name}", "set")
    readable = f"0640 root:{settings.service_user}"
    is_given = any(secret.path == HUB_TOKEN for secret in desired_state.uploaded_secrets)
    yield Expectation("hub token mode", HUB_TOKEN, readable, if_there=not is_given)


def _entries(desired_state: DesiredState) -> list[str]:
    """Return the files of secrets with named entries."""
    return [WEBUI_SECRETS] if desired_state.plan.settings.webui.enabled else []
