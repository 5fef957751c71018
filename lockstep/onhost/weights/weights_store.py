"""The weights on disk: fetched with progress, verified, repaired, and the merged folder.

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

from lockstep.onhost.core import atomic, errors, file_lock, output
from lockstep.onhost.core.progress import Progress
from lockstep.onhost.fetch import claims, content, download, growth, peer_client, url_login
from lockstep.onhost.weights import hub_cache, weights_spec, weights_state

PROGRESS_S = 10.0
EXIT_NO_ACCESS = 3
EXIT_NOT_FOUND = 4
EXIT_DISK_FULL = 5


class Store:
    """The cache of a specification, filled several files at a time.

    Borrowed files are fetched, checked and repaired in the repository that they come from
    (`weights_spec.Repository.parts`). `claim` tells peers that wait that this host is still at it.
    """

    def __init__(
        self,
        spec: weights_spec.Spec,
        token: str | None,
        copier: peer_client.Copier,
        claim: claims.Claim,
    ) -> None:
        self._spec = spec
        self._copier = copier
        self._claim = claim
        self._hub, self._login = url_login.apart(spec.hub)
        # Who writes a login into an address means that server; the token is for the public hub.
        self._headers = self._login or ({"Authorization": f"Bearer {token}"} if token else {})

    def bring(self, repository: weights_spec.Repository, what: str) -> None:
        """Make one repository complete, and say that `what` is there. Problem when it cannot."""
        for part in repository.parts:
            hub_cache.noted(self._spec.cache_dir, part.model.replace("/", "--"), part.revision)
        for part in repository.parts:
            corrupt = self.verify(part)
            if corrupt:
                files = f"{len(corrupt)} corrupt files: {', '.join(corrupt)}"
                output.say(f"weights {part.model}: {files}; fetching them again")
                self._remove(part, corrupt)
            self._download(part)
        self.merge(repository)
        self._write_refs(repository)
        output.say(f"weights {repository.model}: {what} at {self._spec.model_path(repository)}")

    def _remove(self, part: weights_spec.Part, paths: Iterable[str]) -> None:
        """Remove files from the snapshot together with the blobs behind them."""
        snapshot = self._spec.snapshot(part.model, part.revision)
        for path in paths:
            link = snapshot / path
            blob = link.resolve()
            link.unlink(missing_ok=True)
            # A blob may be shared with another revision; a broken one is broken there too.
            blob.unlink(missing_ok=True)

    def _download(self, part: weights_spec.Part) -> None:
        """Fetch what is missing. Problem of the first file that could not be had."""
        snapshot = self._spec.snapshot(part.model, part.revision)
        missing = [file for file in part.files if not (snapshot / file.path).exists()]
        if not missing:
            return
        self._check_disk(part, sum(file.size or 0 for file in missing))
        # Large files first: the last minutes should not belong to one lonely file.
        order = sorted(missing, key=lambda file: -(file.size or 0))
        with growth.repeated(lambda: output.say(self.progress(part))):
            download.several(
                lambda file: self._fetch(part, file),
                order,
                done=lambda file, _: self._stamp(part, file),
            )

    def announce(self) -> None:
        """Say of everything that is not whole how much of it is here, before any of it comes."""
        parts = {part.model: part for each in self._spec.repositories for part in each.parts}
        for part in parts.values():
            snapshot = self._spec.snapshot(part.model, part.revision)
            if not all((snapshot / file.path).exists() for file in part.files):
                output.say(self.progress(part))

    def progress(self, part: weights_spec.Part) -> str:
        """How much of it is here, and where the rest comes from."""
        snapshot = self._spec.snapshot(part.model, part.revision)
        paths = [snapshot / file.path for file in part.files]
        sizes = [path.stat().st_size for path in paths if path.exists()]
        here = sum(sizes) + _begun(self._spec, part)
        return str(
            Progress(
                f"weights {part.model}",
                f"{len(sizes)} of {len(part.files)} files",
                here,
                part.size,
                self._copier.source(urllib.parse.urlsplit(self._hub).hostname or self._hub),
            )
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
                f"{part.model}: {_size(needed - begun)} to fetch, {_size(free)} free "
                f"under {self._spec.cache_dir}. Remedy: free space or move the cache",
                EXIT_DISK_FULL,
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
                    self._claim.beat()
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

    def _write_refs(self, repository: weights_spec.Repository) -> None:
        """Point the names that an engine may ask for (`main`) at the pinned revision."""
        refs = self._spec.repository_folder(repository.model) / "refs"
        for ref in repository.refs:
            if not weights_state.right_ref(self._spec, repository, ref):
                atomic.write(refs / ref, repository.revision)

    def _fetch(self, part: weights_spec.Part, file: weights_spec.File) -> None:
        """Put one file into the cache, its hash checked. Problem with the remedy otherwise."""
        # The layout of huggingface_hub's cache, and its lock: blobs/HASH, a relative link.
        repository = self._spec.repository_folder(part.model)
        blob = repository / "blobs" / file.name
        pointer = self._spec.snapshot(part.model, part.revision) / file.path
        path = urllib.parse.quote(f"{part.model}/resolve/{part.revision}/{file.path}")
        source = download.Source(f"{self._hub}/{path}", file.size, self._headers)
        lock = self._spec.cache_dir / ".locks" / repository.name / f"{file.name}.lock"
        try:
            with file_lock.held(lock):
                if blob.exists() and not content.matches(blob, file.name):
                    blob.unlink()
                if not blob.exists() and not self._copier.bring(file.name, file.size, blob):
                    download.download(lambda: source, blob, file.name)
            pointer.parent.mkdir(parents=True, exist_ok=True)
            pointer.unlink(missing_ok=True)
            pointer.symlink_to(os.path.relpath(blob, pointer.parent))
        except OSError as error:
            where = f"{part.model}@{part.revision[:12]} {file.path}"
            code, why = self._meaning(part, error)
            raise errors.Problem(f"{where}: {why}", code) from error

    def _meaning(self, part: weights_spec.Part, error: OSError) -> tuple[int, str]:
        """Exit code, and what went wrong with its remedy."""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            full = f"disk full under {self._spec.cache_dir}"
            return EXIT_DISK_FULL, f"{full}. Remedy: free space, then run again; it resumes"
        if isinstance(error, download.Spoiled):
            return errors.EXIT_FAILED, (
                "corrupt, also after fetching it again. Remedy: check the disk (dmesg, smartctl) "
                f"and the source {self._hub}"
            )
        if isinstance(error, urllib.error.HTTPError) and (known := self._refusal(part, error)):
            return known
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        return errors.EXIT_FAILED, (
            f"download from {self._hub} failed: {first[:200]}. Remedy: check network and proxy, "
            "then run again; it resumes"
        )

    def _refusal(
        self, part: weights_spec.Part, error: urllib.error.HTTPError
    ) -> tuple[int, str] | None:
        """What the hub means by a status, as huggingface_hub 2.4.0 reads it; None: not known."""
        why, page = error.headers.get("X-Error-Code"), f"{self._hub}/{part.model}"
        if self._login and error.code in (401, 403):
            return EXIT_NO_ACCESS, (
                f"{self._hub} refuses the login (HTTP {error.code}). Remedy: correct user and "
                "password in sources.hub"
            )
        if why == "GatedRepo":
            return EXIT_NO_ACCESS, (
                f"access is gated. Remedy: accept the licence at {page} and give the token of that "
                "account"
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


def _size(size: int) -> str:
    """A size whose figures say something: what is missing may be little."""
    return f"{_gb(size)} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
