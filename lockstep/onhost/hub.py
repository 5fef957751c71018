"""Downloading one file at a pinned revision with huggingface_hub, its errors in the field's words.

The only module here that needs a package beyond the standard library.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lockstep.onhost import common, weights_spec
else:
    import common
    import weights_spec

EXIT_NO_ACCESS = 3
EXIT_NOT_FOUND = 4
EXIT_DISK_FULL = 5


class Hub:
    """The endpoint of a specification, with an access token or without."""

    def __init__(self, spec: weights_spec.Spec, token: str | None) -> None:
        self._spec = spec
        # False, not None: no token of whoever runs this must be used by accident.
        self._token: str | bool = token or False

    def download(self, model: str, revision: str, path: str) -> None:
        """Fetch one file into the cache, resuming what is there. Problem with the remedy."""
        import huggingface_hub
        from huggingface_hub import errors

        where = f"{model}@{revision[:12]} {path}"
        page = f"{self._spec.endpoint}/{model}"
        try:
            huggingface_hub.hf_hub_download(
                model,
                path,
                revision=revision,
                cache_dir=self._spec.cache_dir,
                endpoint=self._spec.endpoint,
                token=self._token,
            )
        except errors.GatedRepoError as error:
            raise common.Problem(
                f"{where}: access is gated. Remedy: accept the licence at {page} and give the "
                "token of that account",
                EXIT_NO_ACCESS,
            ) from error
        except errors.RepositoryNotFoundError as error:
            raise common.Problem(
                f"{where}: the repository does not exist or is private. Remedy: check {page} and "
                "the token",
                EXIT_NOT_FOUND,
            ) from error
        except (errors.RevisionNotFoundError, errors.EntryNotFoundError) as error:
            if isinstance(error, errors.LocalEntryNotFoundError):
                raise self._no_answer(where, error) from error
            raise common.Problem(
                f"{where}: not at {self._spec.endpoint}. Remedy: compare revision and file list "
                f"with {page}/tree/{revision}",
                EXIT_NOT_FOUND,
            ) from error
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise common.Problem(
                    f"{where}: disk full under {self._spec.cache_dir}. Remedy: free space, then "
                    "run again; it resumes",
                    EXIT_DISK_FULL,
                ) from error
            raise self._no_answer(where, error) from error
        except Exception as error:
            # huggingface_hub lets its HTTP library's own errors through, and those change.
            raise self._no_answer(where, error) from error

    def _no_answer(self, where: str, error: Exception) -> common.Problem:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        return common.Problem(
            f"{where}: download from {self._spec.endpoint} failed: {first[:200]}. Remedy: check "
            "network and proxy, then run again; it resumes"
        )
