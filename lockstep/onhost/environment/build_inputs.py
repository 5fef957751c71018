"""The wheels and source trees that one stage of the engine's build needs.

A peer of this deploy that has a file gives it. If an earlier Spark is fetching a file, this host
waits for it. The other files come from indexes and git servers. All are kept in `folder`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lockstep.onhost.core import event_lines, layout
from lockstep.onhost.environment import git_source, wheel_store
from lockstep.onhost.fetch import announced_fetches, peer_client

#: Packages that are built from a source tree, in this order.
TREES = ("vllm", "transformers")


class Content:
    """Wheels and trees of one stage.

    Args:
        spec: As `engine_build` reads it.
        stage: "pytorch", "vllm" or "flashinfer".
        folder: The folder of wheels and bundles, named by hash and by commit.
    """

    def __init__(self, spec: dict[str, Any], stage: str, folder: Path) -> None:
        self._spec = spec
        self._stage = stage
        self._folder = folder
        self._copier = peer_client.Copier(None)
        self._claim = announced_fetches.Claim(None)
        wheels = [wheel for wheel in spec["packages"] if wheel["stage"] == stage]
        trees = TREES if stage == "vllm" else ()
        self.trees: dict[str, dict[str, Any]] = {name: spec[name] for name in trees if spec[name]}
        # uv also installs the tools of the trees' builds, while it builds.
        wheels += spec["built_with"] if self.trees else []
        # The fork's build takes the compiled parts of this wheel; nothing installs it.
        wheels += filter(None, [spec["precompiled"]]) if self.trees else []
        keys = wheel_store.Wheel._fields
        self._wheels = [
            wheel_store.Wheel(**{key: wheel[key] for key in keys if key in wheel})
            for wheel in wheels
        ]

    @contextlib.contextmanager
    def hold_copy_claim(self, paths: layout.Paths) -> Iterator[None]:
        """Copy from peers what they have, and tell them what is fetched here, in the block."""
        self._copier = peer_client.Copier(peer_client.newest_lease(paths))
        # The name that `lockstep.deploy.copying` uses before this program has begun.
        with announced_fetches.hold_claim(
            paths, f"engine-{self._stage}", self._absent_content()
        ) as claim:
            self._claim = claim
            yield
        self._copier.report_copies(f"engine, {self._stage}")

    def show_sign_of_life(self) -> None:
        """Tell waiting peers that this host is still working."""
        self._claim.show_sign_of_life()

    @property
    def links_folder(self) -> Path:
        """The folder in which the wheels have their own names."""
        return self._new_wheel_store().links

    def bring_wheels(self) -> None:
        """Fetch the wheels that are not here; raise Problem if one cannot be had."""
        self._new_wheel_store().bring_wheels(f"engine, {self._stage}", self._wheels)

    def bring_trees(self, home: Path, run: git_source.Run) -> None:
        """Check each source tree out below `home`; raise Problem if a commit cannot be had."""
        for name, source in self.trees.items():
            git_source.SourceRepository(home / name, source, self._folder, run).check_out(
                self._copier
            )

    def replace_spoiled_files(self) -> bool:
        """Fetch files again that no longer match their hash; return False if all matched."""
        spoiled_wheels = self._new_wheel_store().remove_spoiled(self._wheels)
        if not spoiled_wheels:
            return False
        event_lines.say(f"spoiled on disk, fetched again: {', '.join(spoiled_wheels)}")
        self.bring_wheels()
        return True

    def _absent_content(self) -> list[str]:
        commits = [str(source["commit"]) for source in self.trees.values()]
        missing = [commit for commit in commits if not (self._folder / commit).exists()]
        return self._new_wheel_store().absent_hashes(self._wheels) + missing

    def _new_wheel_store(self) -> wheel_store.WheelStore:
        more = [self._spec[key] for key in ("torch_index", "flashinfer_index") if self._spec[key]]
        files = [wheel.url for wheel in self._wheels if wheel.url]
        variables = wheel_store.pip_index_variables(self._spec["index"], more, files)
        pip = wheel_store.Pip(self._spec["tools"], variables)
        return wheel_store.WheelStore(self._folder, pip, self._copier, self.show_sign_of_life)
