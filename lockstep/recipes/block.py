"""The `lockstep:` block of a recipe: settings without a place in the community's format.

Unknown keys are errors here, but not at the top level, where that format keeps them. Every figure
has its source and date.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from packaging.specifiers import SpecifierSet

from lockstep.checkpoints.known_checkpoints import OwnCheckpoint
from lockstep.core.figures import Figure, Text, positive
from lockstep.onhost.core.request_kinds_and_refused_shapes import Kind, TemplateShape
from lockstep.onhost.core.schema import ImpliedFields, Rule, one_of
from lockstep.onhost.engines import ENGINES

# The limits that `docker run --ulimit` knows (docker/go-units, ulimit.go, 0.5.0).
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


# The id is part of a folder's name, and of an address.
def is_hub_id(name: str) -> bool:
    """Tell whether a name is a Hugging Face id."""
    return _Id.fullmatch(name) is not None and ".." not in name


_HubId = Annotated[str, Rule("is not a Hugging Face id", is_hub_id, "ORGANISATION/NAME")]
_File = Annotated[
    str,
    Rule(
        "is no file inside the repository",
        lambda name: name and not name.startswith(("/", "-")) and ".." not in name.split("/"),
        "FOLDER/FILE",
    ),
]
_Memory = Annotated[Figure, ImpliedFields({"quantity": "memory held", "unit": "GiB"}), positive]
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
    """The weights of the speculative decoder.

    Attributes:
        model: Hugging Face id.
        revision: Commit, tag or branch, or None where it is not pinned.
        licence: SPDX id of these weights' licence; None: nobody has established it.
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
    """The keys of a recipe under `lockstep:`; every key may be absent.

    Attributes:
        engine: Engine whose flags the command holds; None where the runtime is none of ours.
        kind: Kind of questions for the model, where the command does not say.
        draft: The draft model's repository; None: the command's, if it names one (`draft_of`).
        borrow: Files to take from other repositories, for example config.json.
        more_files: Files of its own repository that the engine opens beside the weights that its
            loader takes ("audio_detokenizer/*").
        licence: SPDX id of the weights' licence; None means that nobody has established it.
        licence_source: Place where that licence was read.
        moe: Whether the model is a mixture of experts; decides the freeze guard.
        vision: Whether this setup is claimed to read images.
        refused_shapes: Shapes of a conversation that chat template and engine refuse, for the
            gateway to even out; None: those that the lock found of the template.
        checkpoint: Sizes and shapes of the weights, where the catalogue does not know them.
        memory: Memory held while serving, KV cache included (GiB); the start gate asks for it.
        engine_versions: Engine versions whose parser knows these flags ("<0.20"); "" means any.
        ulimits: Container limits the engine needs, in `docker run --ulimit` terms.
        figures: Published figures of this setup.
        known_bad: Why this setup must not be deployed, or None.
        not_at_boot: Why a host must not make it hot by itself after a boot, or None.
    """

    engine: Annotated[str, one_of(ENGINES)] | None = None
    kind: Kind | None = None
    draft: Draft | None = None
    borrow: tuple[Borrow, ...] = ()
    more_files: tuple[_File, ...] = ()
    licence: Text | None = None
    licence_source: Text | None = None
    moe: bool | None = None
    vision: bool | None = None
    refused_shapes: tuple[TemplateShape, ...] | None = None
    checkpoint: Annotated[OwnCheckpoint, ImpliedFields({"id": ""})] | None = None
    memory: _Memory | None = None
    engine_versions: Specifier = ""
    ulimits: Mapping[_Ulimit, _Limit] = field(default_factory=dict)
    figures: tuple[Figure, ...] = ()
    known_bad: Text | None = None
    not_at_boot: Text | None = None

    @property
    def memory_gib(self) -> float | None:
        """Memory of the engine while it serves, GiB; None where nobody published it."""
        return float(self.memory.value) if self.memory else None
