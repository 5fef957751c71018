"""What a site of Sparks in memory is to run that is older, and what was changed on it."""

from __future__ import annotations

from a_site import Site

UNIT = "vllm-qwen36.service"
FILE = f"/etc/systemd/system/{UNIT}"
OLD = "0123456789abcdef"


def outdate(site: Site, host: str, *, hot: bool = True) -> None:
    """Let a host have what an earlier deploy wrote, and run it or not."""
    state = site.document["hosts"][host]
    wanted = state["units"][UNIT]["wanted"]
    state["files"][FILE]["text"] = state["files"][FILE]["text"].replace(wanted, OLD)
    state["units"][UNIT]["wanted"] = OLD
    if hot:
        running = {"ActiveState": "active", "SubState": "running", "generation": OLD}
        state["units"][UNIT] |= running


def changed(site: Site) -> list[tuple[str, str]]:
    """Every change of the last run, with its host, in the order of all hosts together."""
    return [(host, line) for host, line in site.document["order"] if not line.startswith("?")]
