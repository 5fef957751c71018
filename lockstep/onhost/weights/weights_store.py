"""The weights on disk: download with progress, verification, repair and the merged folder."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterable

from lockstep.onhost.core import atomic, errors, output
from lockstep.onhost.fetch import content, download, growth
from lockstep.onhost.weights import weights_sources, weights_spec, weights_state

PROGRESS_S = 10.0


class Store:
    """The cache of a specification, filled from `source`, `workers` files at a time.

    Borrowed files are fetched, checked and repaired in the repository that they come from
    (`weights_spec.Repository.parts`).
    """

    def __init__(
        self, spec: weights_spec.Spec, source: weights_sources.Sources, workers: int = 4
    ) -> None:
        self._spec = spec
        self._source = source
        self._workers = workers

    def remove(self, part: weights_spec.Part, paths: Iterable[str]) -> None:
        """Remove files from the snapshot together with the blobs behind them."""
        snapshot = self._spec.snapshot(part.model, part.revision)
        for path in paths:
            link = snapshot / path
            blob = link.resolve()
            link.unlink(missing_ok=True)
            # A blob may be shared with another revision; a broken one is broken there too.
            blob.unlink(missing_ok=True)

    def download(self, part: weights_spec.Part) -> None:
        """Fetch what is missing. Problem of the first file that could not be had."""
        snapshot = self._spec.snapshot(part.model, part.revision)
        missing = [file for file in part.files if not (snapshot / file.path).exists()]
        if not missing:
            return
        needed = sum(file.size or 0 for file in missing)
        self._check_disk(part, needed)
        output.say(
            f"weights {part.model}: {len(missing)} of {len(part.files)} files to "
            f"fetch, {_gb(needed)} GB"
        )
        # Large files first: the last minutes should not belong to one lonely file.
        order = sorted(missing, key=lambda file: -(file.size or 0))
        with growth.repeated(lambda: output.say(self.progress(part))):
            download.several(
                lambda file: self._source.download(part, file),
                order,
                self._workers,
                lambda file, _: self._stamp(part, file),
            )

    def progress(self, part: weights_spec.Part) -> str:
        """`weights org/name: 3 of 13 files, 12.3 of 70.8 GB`, and whom it waits for."""
        snapshot = self._spec.snapshot(part.model, part.revision)
        paths = [snapshot / file.path for file in part.files]
        sizes = [path.stat().st_size for path in paths if path.exists()]
        here = sum(sizes) + _begun(self._spec, part)
        return (
            f"weights {part.model}: {len(sizes)} of {len(part.files)} files, "
            f"{_gb(here)} of {_gb(part.size)} GB{self._source.note()}"
        )

    def _stamp(self, part: weights_spec.Part, file: weights_spec.File) -> None:
        """Note that a file was read and found right."""
        path = self._spec.snapshot(part.model, part.revision) / file.path
        known = weights_state.stamps(self._spec, part)
        known[file.path] = weights_state.stamp_of(file, path.stat())
        atomic.write_json(self._spec.stamp(part), known)

    def _check_disk(self, part: weights_spec.Part, needed: int) -> None:
        self._spec.cache_dir.mkdir(parents=True, exist_ok=True)
        begun = _begun(self._spec, part)
        free = shutil.disk_usage(self._spec.cache_dir).free
        if needed - begun > free:
            raise errors.Problem(
                f"{part.model}: {_gb(needed - begun)} GB to fetch, {_gb(free)} GB free "
                f"under {self._spec.cache_dir}. Remedy: free space or move the cache",
                5,
            )

    def verify(self, part: weights_spec.Part) -> list[str]:
        """Read every file that has no stamp; the corrupt ones, also those of the wrong size."""
        snapshot = self._spec.snapshot(part.model, part.revision)
        state = weights_state.files(self._spec, part)
        corrupt, unread = list(state.wrong_size), set(state.unverified)
        files = [file for file in part.files if file.path in unread]
        total, read, told = sum(file.size or 0 for file in files), 0, time.monotonic()
        for file in files:
            digest = content.hasher(file.name, (snapshot / file.path).stat().st_size)
            for size in content.chunks(snapshot / file.path, digest):
                read += size
                if time.monotonic() - told >= PROGRESS_S:
                    told = time.monotonic()
                    self._source.beat()
                    output.say(f"weights {part.model}: checking, {_gb(read)} of {_gb(total)} GB")
            if digest.hexdigest() == file.name:
                self._stamp(part, file)
            else:
                corrupt.append(file.path)
        return corrupt

    def merge(self, repository: weights_spec.Repository) -> None:
        """Build the folder of links for a repository that borrows, whole or not at all."""
        if not weights_state.state(self._spec, repository)["not_merged"]:
            return
        merged = self._spec.model_path(repository)
        new = merged.with_name(f"{merged.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        for path, target in weights_state.links(self._spec, repository).items():
            link = new / path
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)
        shutil.rmtree(merged, ignore_errors=True)
        new.rename(merged)

    def write_refs(self, repository: weights_spec.Repository) -> None:
        """Point the names that an engine may ask for (`main`) at the pinned revision."""
        refs = self._spec.repository_folder(repository.model) / "refs"
        for ref in repository.refs:
            if not weights_state.right_ref(self._spec, repository, ref):
                atomic.write(refs / ref, repository.revision)


def _begun(spec: weights_spec.Spec, part: weights_spec.Part) -> int:
    """Bytes of unfinished files."""
    size = 0
    for path in (spec.repository_folder(part.model) / "blobs").glob(f"*{content.PARTIAL}"):
        with contextlib.suppress(OSError):
            # Not st_size: a partial file may be preallocated and sparse.
            size += path.stat().st_blocks * 512
    return size


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f}"
