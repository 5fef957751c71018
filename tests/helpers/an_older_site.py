"""Changes that make a site of Sparks in memory an older one, and the changes of the last run."""

from a_site import Site

UNIT = "vllm-qwen36.service"
FILE = f"/etc/systemd/system/{UNIT}"
OLD = "0123456789abcdef"
RUNNING = {"ActiveState": "active", "SubState": "running"}


def outdate(site: Site, host: str, *, hot: bool = True) -> None:
    """Give a host the files of an earlier deploy, running or not."""
    state = site.document["hosts"][host]
    generation = state["units"][UNIT]["wanted"]
    state["files"][FILE]["text"] = state["files"][FILE]["text"].replace(generation, OLD)
    state["units"][UNIT]["wanted"] = OLD
    if hot:
        state["units"][UNIT] |= {**RUNNING, "restart_key": OLD}


def site_changes(site: Site) -> list[tuple[str, str]]:
    """Every change of the last run, with its host, in the order of all hosts together."""
    return [(host, line) for host, line in site.document["order"] if not line.startswith("?")]


def plan_restart_of_docker(site: Site, host: str) -> None:
    """Make a model hot, and a file of Docker's newer than its process."""
    units = site.document["hosts"][host]["units"]
    units[UNIT] |= {**RUNNING, "restart_key": units[UNIT]["wanted"]}
    units["docker.service"] = {**units[UNIT], **RUNNING, "newer": {"/etc/x": True}, "wanted": ""}
