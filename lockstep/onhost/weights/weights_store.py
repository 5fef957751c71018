"""The weights on disk: download with progress, verification, repair and the merged folder."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable
from typing import Protocol

from lockstep.onhost.core import atomic, errors, output
from lockstep.onhost.fetch import content, download, growth
from lockstep.onhost.weights import weights_spec, weights_state

PROGRESS_S = 10.0
_CHUNK = 8 * 1024 * 1024


class Source(Protocol):
    """Where a file comes from."""

    def download(self, model: str, revision: str, file: weights_spec.File) -> bool:
        """Put one file into the cache; whether its hash was seen to be right meanwhile."""

    def note(self) -> str:
        """What there is to add to a line of progress."""

    def beat(self) -> None:
        """Told now and then while files are only read."""


class Store:
    """The cache of a specification, filled from `source`, `workers` files at a time.

    Borrowed files are fetched, checked and repaired in the repository that they come from
    (`weights_spec.Repository.parts`).
    """

    def __init__(self, spec: weights_spec.Spec, source: Source, workers: int = 4) -> None:
        self._spec = spec
        self._source = source
        self._workers = workers

    def remove_wrong_sizes(self, repository: weights_spec.Repository) -> None:
        """Remove files whose size is not the pinned one, so that they are fetched again."""
        wrong = weights_state.files(self._spec, repository).wrong_size
        if wrong:
            output.say(f"weights {repository.model}: wrong size, removed: {', '.join(wrong)}")
            self.remove(repository, wrong)

    def remove(self, repository: weights_spec.Repository, paths: Iterable[str]) -> None:
        """Remove files from the snapshot together with the blobs behind them."""
        snapshot = self._spec.snapshot(repository.model, repository.revision)
        for path in paths:
            link = snapshot / path
            blob = link.resolve()
            link.unlink(missing_ok=True)
            # A blob may be shared with another revision; a broken one is broken there too.
            blob.unlink(missing_ok=True)

    def download(self, repository: weights_spec.Repository) -> None:
        """Fetch what is missing. Problem of the first file that could not be had."""
        snapshot = self._spec.snapshot(repository.model, repository.revision)
        missing = [file for file in repository.files if not (snapshot / file.path).exists()]
        if not missing:
            return
        needed = sum(file.size or 0 for file in missing)
        self._check_disk(repository, needed)
        output.say(
            f"weights {repository.model}: {len(missing)} of {len(repository.files)} files to "
            f"fetch, {_gb(needed)} GB"
        )
        with growth.repeated(lambda: output.say(self.progress(repository))):
            self._fetch_all(repository, missing)

    def progress(self, repository: weights_spec.Repository) -> str:
        """`weights org/name: 3 of 13 files, 12.3 of 70.8 GB`, and whom it waits for."""
        snapshot = self._spec.snapshot(repository.model, repository.revision)
        paths = [snapshot / file.path for file in repository.files]
        sizes = [path.stat().st_size for path in paths if path.exists()]
        here = sum(sizes) + sum(_blobs(self._spec, repository, "*.incomplete"))
        return (
            f"weights {repository.model}: {len(sizes)} of {len(repository.files)} files, "
            f"{_gb(here)} of {_gb(repository.size)} GB{self._source.note()}"
        )

    def _fetch_all(
        self, repository: weights_spec.Repository, files: Iterable[weights_spec.File]
    ) -> None:
        """Fetch files; those whose hash was right on the way are not read again."""
        # Large files first: the last minutes should not belong to one lonely file.
        order = sorted(files, key=lambda file: -(file.size or 0))
        model, revision = repository.model, repository.revision
        download.several(
            lambda file: self._source.download(model, revision, file),
            order,
            self._workers,
            lambda file, right: self._stamp(repository, file) if right else None,
        )

    def _stamp(self, repository: weights_spec.Repository, file: weights_spec.File) -> None:
        path = self._spec.snapshot(repository.model, repository.revision) / file.path
        known = weights_state.stamps(self._spec, repository)
        known[file.path] = weights_state.stamp_of(file, path.stat())
        self._write_stamps(repository, known)

    def _check_disk(self, repository: weights_spec.Repository, needed: int) -> None:
        self._spec.cache_dir.mkdir(parents=True, exist_ok=True)
        begun = sum(_blobs(self._spec, repository, "*.incomplete"))
        free = shutil.disk_usage(self._spec.cache_dir).free
        if needed - begun > free:
            raise errors.Problem(
                f"{repository.model}: {_gb(needed - begun)} GB to fetch, {_gb(free)} GB free "
                f"under {self._spec.cache_dir}. Remedy: free space or move the cache",
                5,
            )

    def verify(self, repository: weights_spec.Repository) -> list[str]:
        """Read every file whose hash is known and that has no stamp; the corrupt ones.

        A file of the wrong size is among them: the hub's client takes a blob that is there for
        whole, when only the link to it was gone.
        """
        snapshot = self._spec.snapshot(repository.model, repository.revision)
        known = weights_state.stamps(self._spec, repository)
        state = weights_state.files(self._spec, repository)
        corrupt, unread = list(state.wrong_size), set(state.unverified)
        files = [file for file in repository.files if file.path in unread]
        total, read, told = sum(file.size or 0 for file in files), 0, time.monotonic()
        for file in files:
            stat = (snapshot / file.path).stat()
            assert file.name, file
            digest = content.hasher(file.name, stat.st_size)
            with (snapshot / file.path).open("rb", buffering=0) as stream:
                while chunk := stream.read(_CHUNK):
                    digest.update(chunk)
                    read += len(chunk)
                    if time.monotonic() - told >= PROGRESS_S:
                        told = time.monotonic()
                        self._source.beat()
                        output.say(
                            f"weights {repository.model}: checking, {_gb(read)} of {_gb(total)} GB"
                        )
                # The check must not leave 70 GB of page cache in the memory that an engine needs.
                os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            if digest.hexdigest() == file.name:
                known[file.path] = weights_state.stamp_of(file, stat)
                self._write_stamps(repository, known)
            else:
                corrupt.append(file.path)
        return corrupt

    def _write_stamps(self, repository: weights_spec.Repository, known: dict[str, object]) -> None:
        atomic.write_json(self._spec.stamp(repository), known)

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
        for ref in repository.refs:
            path = self._spec.repository_folder(repository.model) / "refs" / ref
            if not path.exists() or path.read_text(encoding="ascii") != repository.revision:
                atomic.write(path, repository.revision)


def _blobs(
    spec: weights_spec.Spec, repository: weights_spec.Repository, pattern: str
) -> Iterable[int]:
    folder = spec.repository_folder(repository.model) / "blobs"
    for path in folder.glob(pattern):
        try:
            # Not st_size: a partial file may be preallocated and sparse.
            yield path.stat().st_blocks * 512
        except OSError:
            continue


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f}"
