"""The `lockstep:` block of a recipe: settings without a place in the community's format.

Unknown keys are errors here, unlike at the top level, where that format keeps them. A figure never
stands without its source and date.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from packaging.specifiers import SpecifierSet

from lockstep.core.figures import Figure, Text, positive
from lockstep.models.known_models import OwnModel
from lockstep.onhost.core.kind import Kind, TemplateShape
from lockstep.onhost.core.schema import Implied, Rule, one_of
from lockstep.onhost.engines import ENGINES

# What `docker run --ulimit` knows (docker/go-units, ulimit.go, 0.5.0).
_Ulimit = Annotated[
    str,
    one_of(
        (
            *("core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile"),
            *("nproc", "rss", "rtprio", "rttime", "sigpending", "stack"),
        )
    ),
]
_Limit = Annotated[int, Rule("is no limit", lambda limit: limit >= -1, "-1 (unlimited) or more")]
_Id = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[\w.-]+)?", re.ASCII)
# A part of a folder's name, and of an address.
_HubId = Annotated[
    str,
    Rule(
        "is not a Hugging Face id",
        lambda name: _Id.fullmatch(name) and ".." not in name,
        "ORGANISATION/NAME",
    ),
]
_File = Annotated[
    str,
    Rule(
        "is no file inside the repository",
        lambda name: name and not name.startswith(("/", "-")) and ".." not in name.split("/"),
        "FOLDER/FILE",
    ),
]
_Memory = Annotated[Figure, Implied({"what": "memory held", "unit": "GiB"}), positive]
#: InvalidSpecifier is a ValueError.
Specifier = Annotated[
    str,
    Rule(
        "is not a version specifier",
        lambda text: SpecifierSet(text) is not None,
        '">=7,<8", or "" for any',
    ),
]


@dataclass(frozen=True, slots=True)
class Draft:
    """The speculative decoder's own weights.

    Attributes:
        model: Hugging Face id.
        revision: Commit, tag or branch, or None where it is not pinned.
        licence: SPDX id of these weights' own licence; None: what the lock found of the template.
    """

    model: _HubId
    revision: Text | None = None
    licence: Text | None = None


@dataclass(frozen=True, slots=True)
class Borrow:
    """Files that the weights repository lacks and another repository has."""

    model: _HubId
    files: Annotated[tuple[_File, ...], Rule("names no file", bool)]
    revision: Text | None = None


@dataclass(frozen=True, slots=True)
class LockstepBlock:
    """What a recipe says under `lockstep:`; every key may be absent.

    Attributes:
        engine: Which engine's flags the command holds; None where the runtime is neither.
        kind: What the model is asked for, where the command does not say.
        draft: The draft model's repository.
        borrow: Files to take from other repositories, for example config.json.
        licence: SPDX id of the weights' licence; None means that nobody has established it.
        licence_source: Where that licence was read.
        moe: Whether the model is a mixture of experts; decides the freeze guard.
        vision: Whether this setup is claimed to read images.
        refused_shapes: Shapes of a conversation that chat template and engine refuse, for the
            gateway to even out; None: nobody has established it.
        checkpoint: Sizes and shapes of the weights, where the catalogue does not know them.
        memory: Memory held while serving, KV cache included (GiB); what the start gate asks for.
        engine_versions: Engine versions whose parser knows these flags ("<0.20"); "" means any.
        ulimits: Container limits the engine needs, in `docker run --ulimit` terms.
        figures: What was published about this setup.
        known_bad: Why this setup must not be deployed, or None.
        not_at_boot: Why a host must not make it hot by itself after a boot, or None.
    """

    engine: Annotated[str, one_of(ENGINES)] | None = None
    kind: Kind | None = None
    draft: Draft | None = None
    borrow: tuple[Borrow, ...] = ()
    licence: Text | None = None
    licence_source: Text | None = None
    moe: bool | None = None
    vision: bool | None = None
    refused_shapes: tuple[TemplateShape, ...] | None = None
    checkpoint: Annotated[OwnModel, Implied({"id": ""})] | None = None
    memory: _Memory | None = None
    engine_versions: Specifier = ""
    ulimits: Mapping[_Ulimit, _Limit] = field(default_factory=dict)
    figures: tuple[Figure, ...] = ()
    known_bad: Text | None = None
    not_at_boot: Text | None = None

    @property
    def memory_gib(self) -> float | None:
        """GiB the engine holds while serving, or None where nobody published it."""
        return float(self.memory.value) if self.memory else None
