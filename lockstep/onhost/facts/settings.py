"""Settings of the system in files, to be compared between hosts."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from lockstep.onhost.facts.files import content
from lockstep.onhost.facts.reading import Facts, below, owner, seal
from lockstep.onhost.records import ours

_FSTAB = "/etc/fstab"
_ID = re.compile(rb"(UUID|PARTUUID|LABEL)=\S+")


def every(asked: dict[str, Any]) -> Facts:
    """Content, mode and owner of everything that sets the system up and is not the deploy's.

    Args:
        asked: "key"; the "places" of settings, of which the paths in "known" and what begins with
            one of "theirs" are other readers' matter.
    """
    known, theirs = set(asked["known"]), tuple(asked["theirs"])
    for path in (path for place in asked["places"] for path in below(place)):
        link = path.startswith(ours.UNITS) and os.path.islink(path)
        if path in known or link or path.startswith(theirs) or ours.marked(Path(path)):
            continue
        if path == _FSTAB:
            # A disk has an identity of its own.
            whole = _ID.sub(rb"\1=(own)", Path(path).read_bytes())
            yield "setting", path, seal(asked["key"], whole)
        else:
            yield "setting", path, content(asked["key"], path)
        yield "setting mode", path, owner(os.lstat(path))
