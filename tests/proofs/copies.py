"""Files that two hosts copied from each other, and leftovers of the copying."""

from stack import Host, Stack

MODELS = "/data/models/huggingface"


def hashes(host: Host, folders: str = ".") -> list[str]:
    """Hash and name of every file in the hub cache, or in these folders of it."""
    output = host.root(
        f"cd {MODELS}/hub && find {folders} -type f -path '*/blobs/*' -exec sha256sum {{}} +"
    )
    return sorted(output.splitlines())


def nothing_is_left(stack: Stack) -> None:
    """Check that no port, unit or token of the copying is left."""
    for host in stack.hosts:
        assert host.root("ss -Hltn 'sport = :7077'") == ""
        assert host.run("systemctl is-active lockstep-peer.service").out.strip() == "inactive"
        # No folder at all where none was copied since the boot.
        assert host.root("cd /run/lockstep/peers 2>/dev/null && find -name '*.json'; true") == ""
