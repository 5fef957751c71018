"""Where a model's file comes from: a peer that has it, else the hub. Either resumes."""

from __future__ import annotations

import errno
import os
import urllib.error
import urllib.parse

from lockstep.onhost.core import errors, file_lock
from lockstep.onhost.fetch import claims, content, peer_client, url_login
from lockstep.onhost.fetch import download as resume
from lockstep.onhost.weights import weights_spec

EXIT_NO_ACCESS = 3
EXIT_NOT_FOUND = 4
EXIT_DISK_FULL = 5


class Sources:
    """Peers first, then the hub, asked with an access token or without."""

    def __init__(
        self,
        spec: weights_spec.Spec,
        token: str | None,
        copier: peer_client.Copier,
        claim: claims.Claim,
    ) -> None:
        self._spec = spec
        self._copier = copier
        self._hub, self._login = url_login.apart(spec.hub)
        # Who writes a login into an address means that server; the token is for the public hub.
        self._headers = self._login or ({"Authorization": f"Bearer {token}"} if token else {})
        #: Whom somebody waits for; and what tells peers that wait that this host is still at it.
        self.note, self.beat = copier.note, claim.beat

    def download(self, part: weights_spec.Part, file: weights_spec.File) -> None:
        """Put one file into the cache, its hash checked. Problem with the remedy otherwise."""
        # The layout of huggingface_hub's cache, and its lock: blobs/HASH, a relative link.
        repository = self._spec.repository_folder(part.model)
        blob = repository / "blobs" / file.name
        pointer = self._spec.snapshot(part.model, part.revision) / file.path
        path = urllib.parse.quote(f"{part.model}/resolve/{part.revision}/{file.path}")
        source = resume.Source(f"{self._hub}/{path}", file.size, self._headers)
        lock = self._spec.cache_dir / ".locks" / repository.name / f"{file.name}.lock"
        try:
            with file_lock.held(lock):
                if blob.exists() and not content.matches(blob, file.name):
                    blob.unlink()
                if not blob.exists() and not self._copier.bring(file.name, file.size, blob):
                    resume.download(lambda: source, blob, file.name)
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
        if isinstance(error, resume.Spoiled):
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
