"""A host's state before a deploy that is to come to nothing, and the differences afterwards."""

import json
from dataclasses import dataclass
from typing import Self

from stack import Host

# Every file and link with mode, owner and hash, whatever stage writes it; where `current` leads.
# Secrets stay as they are (docs/rolling.md), as do the environments of tools. A name that ends in -
# is the copy of a file of accounts from before their last change.
_FIND = (
    "find etc data/scripts usr/local/lib/lockstep \\( -name __pycache__ -o -name '*-'"
    " -o -path '*/environments' -o -path etc/lockstep/secrets \\) -prune -o"
)
_FILES = (
    f"cd /; {_FIND} \\( -type f -o -type l \\) -printf '%p %m %u:%g %l\\n' | sort;"
    f" {_FIND} -type f -print0 | sort -z | xargs -0 sha256sum;"
    " readlink /opt/lockstep/engines/current"
)
# The host's own programs compare it with its own record.
_RECORDS = (
    'cd /; python3 -IB -c \'import json, sys; sys.path.insert(0, "/usr/local/lib/lockstep");'
    " from lockstep.onhost.facts import deploy_records as records;"
    " print(json.dumps({}))'"
)


@dataclass(frozen=True)
class EarlierState:
    """A host's files of ours, and the digest of its newest generation, at one moment."""

    host: Host
    generation: str
    files: frozenset[str]

    @classmethod
    def of(cls, host: Host) -> Self:
        """The state now."""
        digest = json.loads(host.root(_RECORDS.format('records.generation(None)["digest"]')))
        return cls(host, digest, frozenset(host.root(_FILES).splitlines()))

    def differences(self) -> list[str]:
        """The present differences: from the record of that generation, and of each file."""
        compare = _RECORDS.format(f'records.differences_from_generation("{self.generation}")')
        lines: list[str] = json.loads(self.host.root(compare))
        now = EarlierState.of(self.host).files
        lines += [f"gone: {line}" for line in sorted(self.files - now)]
        lines += [f"new: {line}" for line in sorted(now - self.files)]
        return [f"{self.host.name}: {line}" for line in lines]
