"""What one stage of the engine's build needs from elsewhere: its wheels and source trees.

A Spark of this deploy that has something gives it, an earlier one that is fetching it is waited
for, and the rest comes from indexes and git servers. All of it is kept in `folder`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lockstep.onhost.core import layout, output
from lockstep.onhost.environment import git_source, wheel_store
from lockstep.onhost.fetch import claims, peer_client

#: What is built from a source tree, in this order.
TREES = ("vllm", "transformers")


class Content:
    """Wheels and trees of one stage.

    Args:
        spec: As `engine_build` reads it.
        stage: "pytorch", "vllm" or "flashinfer".
        folder: Where wheels and bundles are kept, named by hash and by commit.
    """

    def __init__(self, spec: dict[str, Any], stage: str, folder: Path) -> None:
        self._spec = spec
        self._stage = stage
        self._folder = folder
        self._copier = peer_client.Copier(None)
        self._claim = claims.Claim(None)
        wheels = [each for each in spec["packages"] if each["stage"] == stage]
        trees = TREES if stage == "vllm" else ()
        self.trees: dict[str, dict[str, Any]] = {name: spec[name] for name in trees if spec[name]}
        # What the trees are built with is installed by uv as well, while it builds.
        wheels += spec["built_with"] if self.trees else []
        # Of this one the fork's build takes the compiled parts; nothing installs it.
        wheels += filter(None, [spec["precompiled"]]) if self.trees else []
        keys = wheel_store.Wheel._fields
        self._wheels = [
            wheel_store.Wheel(**{key: each[key] for key in keys if key in each}) for each in wheels
        ]

    @contextlib.contextmanager
    def shared(self, paths: layout.Paths) -> Iterator[None]:
        """Copy from peers what they have, and tell them what is fetched here, in the block."""
        self._copier = peer_client.Copier(peer_client.lease(paths))
        # What `lockstep.deploy.copying` calls it before this program has begun.
        with claims.held(paths, f"engine-{self._stage}", self._absent()) as claim:
            self._claim = claim
            yield
        self._copier.told(f"engine, {self._stage}")

    def beat(self) -> None:
        """Tell peers that wait that this host is still at it."""
        self._claim.beat()

    @property
    def links(self) -> Path:
        """Folder in which the wheels have their own names."""
        return self._store().links

    def bring_wheels(self) -> None:
        """Fetch the wheels that are not here. Problem when one cannot be had."""
        self._store().bring(f"engine, {self._stage}", self._wheels)

    def bring_trees(self, home: Path, run: git_source.Run) -> None:
        """Check each source tree out below `home`. Problem when a commit cannot be had."""
        for name, source in self.trees.items():
            git_source.Repository(home / name, source, self._folder, run).check_out(self._copier)

    def mended(self) -> bool:
        """Fetch again what is not what its hash says any more; False where nothing was wrong."""
        spoiled = self._store().remove_spoiled(self._wheels)
        if not spoiled:
            return False
        output.say(f"spoiled on disk, fetched again: {', '.join(spoiled)}")
        self.bring_wheels()
        return True

    def _absent(self) -> list[str]:
        commits = [str(source["commit"]) for source in self.trees.values()]
        missing = [commit for commit in commits if not (self._folder / commit).exists()]
        return self._store().absent(self._wheels) + missing

    def _store(self) -> wheel_store.Store:
        more = [self._spec[key] for key in ("torch_index", "flashinfer_index") if self._spec[key]]
        files = [wheel.url for wheel in self._wheels if wheel.url]
        variables = wheel_store.variables(self._spec["index"], more, files)
        pip = wheel_store.Pip(self._spec["tools"], variables)
        return wheel_store.Store(self._folder, pip, self._copier, self.beat)
