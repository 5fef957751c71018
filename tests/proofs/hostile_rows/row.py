"""The parts of the rows of hostile.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stack import Answer

if TYPE_CHECKING:
    from hostile import Site

Do = Callable[["Site"], str]


@dataclass(frozen=True)
class Row:
    """One fault."""

    name: str
    expectation: str
    do: Do


def row(name: str, expectation: str, do: Callable[..., str], *words: object) -> Row:
    """A row whose function takes more words than the site."""
    return Row(name, expectation, lambda site: do(site, *words))


#: Folders of ours, for whoever looks for what is open to everybody.
OURS = (
    "/run/lockstep* /var/lib/lockstep* /etc/lockstep /var/log/lockstep /opt/lockstep "
    "/var/cache/lockstep /data/scripts /data/models /usr/local/lib/lockstep"
)

UNITS = "/etc/systemd/system"

SWITCH = "/data/scripts/llm/switch.sh"

#: The processes of qwen's container, known to the kernel.
QWEN_GROUP = "/sys/fs/cgroup/system.slice/system-lockstep.slice/system-lockstep-vllm.qwen36.slice"

#: Longest that one command of anybody may take, seconds; a switch with Docker hung takes a minute.
BOUND_S = 300.0

FREEZE, THAW = "pkill -STOP -x dockerd", "pkill -CONT -x dockerd"


def expect(right: bool, message: str) -> None:
    """Fail with a text about the outcome, unless the condition holds."""
    assert right, message


def short(answer: Answer, most: int = 200) -> str:
    """Exit code and last words of an answer."""
    return f"rc {answer.code}: …{' '.join(answer.text.split())[-most:]}"


def alive(site: Site) -> list[str]:
    """Process ids in qwen's container."""
    return site.host.root(f"cat {QWEN_GROUP}/docker-*.scope/cgroup.procs 2>/dev/null; true").split()


def heal_by_deploy(site: Site) -> str:
    result = site.deploy()
    expect(result.code == 0, short(result))
    differs = site.drift()
    expect(differs.code == 0, short(differs, 400))
    return "deploy rc 0, diff has no finding"
