"""Storage of weights on disk: download with progress, check, repair, and the merged folder.

A file comes from a peer that has it, else from the hub. Either resumes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
import urllib.error
import urllib.parse
from collections.abc import Iterable

from lockstep.onhost.core import atomic_files, errors, event_lines, file_lock
from lockstep.onhost.fetch import (
    announced_fetches,
    blob_files,
    growth_report,
    login_in_url,
    peer_client,
    resumable_download,
)
from lockstep.onhost.fetch.download_progress import Progress
from lockstep.onhost.weights import own_snapshots, weights_spec, weights_state

PROGRESS_S = 10.0
EXIT_NO_ACCESS = 3
EXIT_NOT_FOUND = 4
EXIT_DISK_FULL = 5


class WeightsStore:
    """The cache of a specification, filled several files at a time.

    Borrowed files are downloaded, checked and repaired in the repository that they come from
    (`weights_spec.RepositoryPart.own_and_borrowed_parts`). `claim` tells waiting peers that this
    host still works.
    """

    def __init__(
        self,
        spec: weights_spec.Spec,
        token: str | None,
        copier: peer_client.Copier,
        claim: announced_fetches.Claim,
    ) -> None:
        self._spec = spec
        self._copier = copier
        self._claim = claim
        self._hub, self._login = login_in_url.split_off_login(spec.hub_url)
        # A login in the address is meant for that server; the token is for the public hub.
        self._headers = self._login or ({"Authorization": f"Bearer {token}"} if token else {})

    def complete_repository(
        self, repository: weights_spec.RepositoryPart, description: str
    ) -> None:
        """Make one repository complete and report it as `description`; raise Problem on failure."""
        for part in repository.own_and_borrowed_parts:
            own_snapshots.note_own_snapshot(
                self._spec.cache_dir, part.model.replace("/", "--"), part.revision
            )
        for part in repository.own_and_borrowed_parts:
            corrupt = self.corrupt_files(part)
            if corrupt:
                files = f"{len(corrupt)} corrupt files: {', '.join(corrupt)}"
                event_lines.say(f"weights {part.model}: {files}; fetching them again")
                self._remove_files(part, corrupt)
            self._download_missing(part)
        self.merge_repository(repository)
        self._write_refs(repository)
        event_lines.say(
            f"weights {repository.model}: {description} at {self._spec.model_path(repository)}"
        )

    def _remove_files(self, part: weights_spec.WeightsPart, paths: Iterable[str]) -> None:
        """Remove files from the snapshot together with the blobs behind them."""
        snapshot = self._spec.snapshot_folder(part.model, part.revision)
        for path in paths:
            link = snapshot / path
            blob = link.resolve()
            link.unlink(missing_ok=True)
            # A blob may be shared with another revision; a broken one is broken there too.
            blob.unlink(missing_ok=True)

    def _download_missing(self, part: weights_spec.WeightsPart) -> None:
        """Download missing files; raise Problem for the first file that failed."""
        snapshot = self._spec.snapshot_folder(part.model, part.revision)
        missing = [file for file in part.files if not (snapshot / file.path).exists()]
        if not missing:
            return
        self._check_disk(part, sum(file.size or 0 for file in missing))
        # Large files first: the last minutes should not belong to one lonely file.
        order = sorted(missing, key=lambda file: -(file.size or 0))
        with growth_report.call_periodically(lambda: event_lines.say(self.progress_text(part))):
            resumable_download.work_through(
                lambda file: self._fetch_file(part, file),
                order,
                on_result=lambda file, _: self._record_verified_file(part, file),
            )

    def report_incomplete(self) -> None:
        """Report how much of each incomplete repository is here, before any download."""
        parts = {
            part.model: part
            for repository in self._spec.repositories
            for part in repository.own_and_borrowed_parts
        }
        for part in parts.values():
            snapshot = self._spec.snapshot_folder(part.model, part.revision)
            if not all((snapshot / file.path).exists() for file in part.files):
                event_lines.say(self.progress_text(part))

    def progress_text(self, part: weights_spec.WeightsPart) -> str:
        """Describe how much of it is here, and the source of the rest."""
        snapshot = self._spec.snapshot_folder(part.model, part.revision)
        paths = [snapshot / file.path for file in part.files]
        sizes = [path.stat().st_size for path in paths if path.exists()]
        present_bytes = sum(sizes) + _unfinished_bytes(self._spec, part)
        return str(
            Progress(
                f"weights {part.model}",
                f"{len(sizes)} of {len(part.files)} files",
                present_bytes,
                part.size,
                self._copier.source_text(urllib.parse.urlsplit(self._hub).hostname or self._hub),
            )
        )

    def _record_verified_file(
        self, part: weights_spec.WeightsPart, file: weights_spec.File
    ) -> None:
        """Record that a file was read and found right."""
        path = self._spec.snapshot_folder(part.model, part.revision) / file.path
        stamps_by_file = weights_state.read_stamps(self._spec, part)
        stamps_by_file[file.path] = weights_state.stamp_of(file, path.stat())
        atomic_files.write_json(self._spec.stamp_path(part), stamps_by_file)

    def _check_disk(self, part: weights_spec.WeightsPart, needed_bytes: int) -> None:
        self._spec.cache_dir.mkdir(parents=True, exist_ok=True)
        begun_bytes = _unfinished_bytes(self._spec, part)
        free = shutil.disk_usage(self._spec.cache_dir).free
        if needed_bytes - begun_bytes > free:
            raise errors.Problem(
                f"{part.model}: {_size_text(needed_bytes - begun_bytes)} to fetch, "
                f"{_size_text(free)} free under {self._spec.cache_dir}. "
                "Remedy: free space or move the cache",
                EXIT_DISK_FULL,
            )

    def corrupt_files(self, part: weights_spec.WeightsPart) -> list[str]:
        """Read every file without a stamp; return corrupt ones, also those of the wrong size."""
        snapshot = self._spec.snapshot_folder(part.model, part.revision)
        state = weights_state.check_files(self._spec, part)
        corrupt, unread = list(state.wrong_size), set(state.unverified_paths)
        files = [file for file in part.files if file.path in unread]
        total, read, report_time = sum(file.size or 0 for file in files), 0, time.monotonic()
        for file in files:
            digest = blob_files.hasher(file.content_hash, (snapshot / file.path).stat().st_size)
            for size in blob_files.feed_hash_in_pieces(snapshot / file.path, digest):
                read += size
                if time.monotonic() - report_time >= PROGRESS_S:
                    report_time = time.monotonic()
                    self._claim.show_sign_of_life()
                    event_lines.say(
                        f"weights {part.model}: checking, {_gb(read)} of {_gb(total)} GB"
                    )
            if digest.hexdigest() == file.content_hash:
                self._record_verified_file(part, file)
            else:
                corrupt.append(file.path)
        return corrupt

    def merge_repository(self, repository: weights_spec.RepositoryPart) -> None:
        """Build the folder of links for a repository that borrows, whole or not at all."""
        if not weights_state.state(self._spec, repository)["not_merged"]:
            return
        target_path = self._spec.model_path(repository)
        new = target_path.with_name(f"{target_path.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        for path, target in weights_state.merged_links(self._spec, repository).items():
            link = new / path
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)
        shutil.rmtree(target_path, ignore_errors=True)
        new.rename(target_path)

    def _write_refs(self, repository: weights_spec.RepositoryPart) -> None:
        """Point the names that an engine may ask for (`main`) at the pinned revision."""
        refs = self._spec.repository_folder(repository.model) / "refs"
        for ref in repository.refs:
            if not weights_state.is_ref_right(self._spec, repository, ref):
                atomic_files.write(refs / ref, repository.revision)

    def _fetch_file(self, part: weights_spec.WeightsPart, file: weights_spec.File) -> None:
        """Put one file into the cache with its hash checked; else raise Problem with the remedy."""
        # The layout of huggingface_hub's cache, and its lock: blobs/HASH, a relative link.
        repository = self._spec.repository_folder(part.model)
        blob = repository / "blobs" / file.content_hash
        pointer = self._spec.snapshot_folder(part.model, part.revision) / file.path
        path = urllib.parse.quote(f"{part.model}/resolve/{part.revision}/{file.path}")
        source = resumable_download.DownloadSource(f"{self._hub}/{path}", file.size, self._headers)
        lock = self._spec.cache_dir / ".locks" / repository.name / f"{file.content_hash}.lock"
        try:
            with file_lock.hold_lock(lock):
                if blob.exists() and not blob_files.matches(blob, file.content_hash):
                    blob.unlink()
                if not blob.exists() and not self._copier.copy_from_peer(
                    file.content_hash, file.size, blob
                ):
                    resumable_download.download(lambda: source, blob, file.content_hash)
            pointer.parent.mkdir(parents=True, exist_ok=True)
            pointer.unlink(missing_ok=True)
            pointer.symlink_to(os.path.relpath(blob, pointer.parent))
        except OSError as error:
            where = f"{part.model}@{part.revision[:12]} {file.path}"
            code, why = self._download_failure(part, error)
            raise errors.Problem(f"{where}: {why}", code) from error

    def _download_failure(self, part: weights_spec.WeightsPart, error: OSError) -> tuple[int, str]:
        """Return the exit code, and the fault with its remedy."""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            full = f"disk full under {self._spec.cache_dir}"
            return EXIT_DISK_FULL, f"{full}. Remedy: free space, then run again; it resumes"
        if isinstance(error, resumable_download.SpoiledDownload):
            return errors.EXIT_FAILED, (
                "corrupt, also after fetching it again. Remedy: check the disk (dmesg, "
                f"smartctl) and the source {self._hub}"
            )
        if isinstance(error, urllib.error.HTTPError) and (
            refusal := self._hub_refusal_text(part, error)
        ):
            return refusal
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        return errors.EXIT_FAILED, (
            f"download from {self._hub} failed: {first[:200]}. Remedy: check network and proxy, "
            "then run again; it resumes"
        )

    def _hub_refusal_text(
        self, part: weights_spec.WeightsPart, error: urllib.error.HTTPError
    ) -> tuple[int, str] | None:
        """Explain a status of the hub, as huggingface_hub 2.4.0 reads it; None if unknown."""
        why, page = error.headers.get("X-Error-Code"), f"{self._hub}/{part.model}"
        if self._login and error.code in (401, 403):
            return EXIT_NO_ACCESS, (
                f"{self._hub} refuses the login (HTTP {error.code}). Remedy: correct user and "
                "password in sources.hub"
            )
        if why == "GatedRepo":
            return EXIT_NO_ACCESS, (
                f"access is gated. Remedy: accept the licence at {page} and give the token of "
                "that account"
            )
        if why == "RepoNotFound" or error.code == 401:
            return EXIT_NOT_FOUND, (
                f"the repository does not exist or is private. Remedy: check {page} and the token"
            )
        if error.code == 404:
            return EXIT_NOT_FOUND, (
                f"not at {self._hub}. Remedy: compare revision and file list with "
                f"{page}/tree/{part.revision}"
            )
        return None


def _unfinished_bytes(spec: weights_spec.Spec, part: weights_spec.WeightsPart) -> int:
    """Return the bytes of unfinished files."""
    size = 0
    for path in (spec.repository_folder(part.model) / "blobs").glob(f"*{blob_files.PARTIAL}"):
        with contextlib.suppress(OSError):
            # Not st_size: a partial file may be preallocated and sparse.
            size += path.stat().st_blocks * 512
    return size


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f}"


def _size_text(size: int) -> str:
    """Format a size with enough digits, because little may be missing."""
    return f"{_gb(size)} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
