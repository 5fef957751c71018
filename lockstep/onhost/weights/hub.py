"""One file of a model repository at a pinned revision into the hub cache, resumable.

huggingface_hub resolves the file (redirects, access, entity tag), `resume` moves the bytes. The
only module here that needs a package beyond the standard library.
"""

from __future__ import annotations

import errno
import os
import urllib.error
import urllib.parse

from lockstep.onhost.core import errors
from lockstep.onhost.fetch import download as resume
from lockstep.onhost.fetch import url_login
from lockstep.onhost.weights import weights_spec

EXIT_NO_ACCESS = 3
EXIT_NOT_FOUND = 4
EXIT_DISK_FULL = 5


class Hub:
    """The endpoint of a specification, with an access token or without."""

    def __init__(self, spec: weights_spec.Spec, token: str | None) -> None:
        self._spec = spec
        #: The endpoint without a password.
        self.shown, self._login = url_login.apart(spec.endpoint)
        # False, not None: no token of whoever runs this must be used by accident. Who writes a
        # login into an address means that server; the token is for the public hub.
        self._token: str | bool = False if self._login else token or False

    def download(self, model: str, revision: str, file: weights_spec.File) -> None:
        """Fetch one file into the cache, resuming what is there. Problem with the remedy.

        Its hash is not checked here.
        """
        from huggingface_hub import errors as refusals

        where = f"{model}@{revision[:12]} {file.path}"
        page = f"{self.shown}/{model}"
        try:
            self._into_cache(model, revision, file)
        except refusals.GatedRepoError as error:
            raise errors.Problem(
                f"{where}: access is gated. Remedy: accept the licence at {page} and give the "
                "token of that account",
                EXIT_NO_ACCESS,
            ) from error
        except refusals.RepositoryNotFoundError as error:
            raise errors.Problem(
                f"{where}: the repository does not exist or is private. Remedy: check {page} and "
                "the token",
                EXIT_NOT_FOUND,
            ) from error
        except (refusals.RevisionNotFoundError, refusals.EntryNotFoundError) as error:
            raise errors.Problem(
                f"{where}: not at {self.shown}. Remedy: compare revision and file list "
                f"with {page}/tree/{revision}",
                EXIT_NOT_FOUND,
            ) from error
        except urllib.error.HTTPError as error:
            if self._login and error.code in (401, 403):
                raise errors.Problem(
                    f"{where}: {self.shown} refuses the login (HTTP {error.code}). Remedy: correct "
                    "user and password in sources.hub",
                    EXIT_NO_ACCESS,
                ) from error
            raise self._no_answer(where, error) from error
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise disk_full(where, self._spec) from error
            raise self._no_answer(where, error) from error
        except Exception as error:
            # huggingface_hub lets its HTTP library's own errors through, and those change.
            raise self._no_answer(where, error) from error

    def _into_cache(self, model: str, revision: str, file: weights_spec.File) -> None:
        """Fill the hub cache's own layout: blobs/HASH, a relative link in snapshots/REVISION."""
        pointer = self._spec.snapshot(model, revision) / file.path
        if pointer.exists():
            return
        first, etag = self._found(model, revision, file)
        repository = self._spec.repository_folder(model)
        # The hub's entity tag is the hash; a mirror's must not lead to another file's content.
        blob = repository / "blobs" / (file.name or etag)
        fresh = iter([first])

        def source() -> resume.Source:
            return next(fresh, None) or self._found(model, revision, file)[0]

        with resume.locked(self._spec.cache_dir / ".locks" / repository.name / f"{blob.name}.lock"):
            if not blob.exists():
                resume.download(source, blob)
        pointer.parent.mkdir(parents=True, exist_ok=True)
        pointer.unlink(missing_ok=True)
        pointer.symlink_to(os.path.relpath(blob, pointer.parent))

    def _found(
        self, model: str, revision: str, file: weights_spec.File
    ) -> tuple[resume.Source, str]:
        """Where the bytes are now, and the entity tag that the server gives them."""
        import huggingface_hub

        url = huggingface_hub.hf_hub_url(model, file.path, revision=revision, endpoint=self.shown)
        if self._login and file.name:
            # The hub's client would send the header along a redirect to huggingface.co.
            return resume.Source(url, file.size, self._login), file.name
        metadata = huggingface_hub.get_hf_file_metadata(
            url, token=self._token, endpoint=self.shown, retry_on_errors=True
        )
        if not metadata.etag or "/" in metadata.etag:
            raise OSError(f"{url} answers without a usable entity tag")
        same_host = _host(metadata.location) == _host(self.shown)
        headers = {"Authorization": f"Bearer {self._token}"} if self._token and same_host else {}
        return resume.Source(metadata.location, metadata.size, headers), metadata.etag

    def _no_answer(self, where: str, error: Exception) -> errors.Problem:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        return errors.Problem(
            f"{where}: download from {self.shown} failed: {first[:200]}. Remedy: check "
            "network and proxy, then run again; it resumes"
        )


def disk_full(where: str, spec: weights_spec.Spec) -> errors.Problem:
    """What there is to say when a file does not fit."""
    return errors.Problem(
        f"{where}: disk full under {spec.cache_dir}. Remedy: free space, then run again; it "
        "resumes",
        EXIT_DISK_FULL,
    )


def _host(url: str) -> str:
    return urllib.parse.urlsplit(url).netloc
