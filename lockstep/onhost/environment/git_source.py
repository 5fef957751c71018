"""A git repository at one commit: from a bundle of this Spark or of a peer, else from its origin.

A bundle is git's own file of a history. Git computes the id of everything in it anew and refuses a
history with holes. So a bundle that yields the commit is right, whatever its source.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lockstep.onhost.core import errors, event_lines, file_lock
from lockstep.onhost.fetch import login_in_url, peer_client

#: Runs a command, with more variables by name; raises errors.Problem if it fails.
Run = Callable[..., None]


class SourceRepository:
    """One working copy, made by git itself, because uv knows fewer kinds of URL than git.

    `source` has "git" (an address), "branch" and "commit". The name of a bundle in `store` is its
    commit. `run` runs commands that may take long.
    """

    def __init__(self, folder: Path, source: dict[str, Any], store: Path, run: Run) -> None:
        self._source = source
        self._commit = str(source["commit"])
        self._bundle = store / self._commit
        self._lock = store / ".locks" / self._commit
        self._folder = folder
        self._git = ("git", "-C", str(folder))
        self._run = run

    def check_out(self, copier: peer_client.Copier) -> None:
        """Check out the commit with its files unchanged, and keep a bundle for peers."""
        # A git that was cut off leaves its locks behind, and then no other git works here.
        for lock in (self._folder / ".git").glob("*.lock"):
            lock.unlink()
        self._run("git", "init", "--quiet", str(self._folder))
        with file_lock.hold_lock(self._lock):
            if not self._has_commit() and not self._from_bundle(copier):
                self._from_origin()
            self._run(*self._git, "checkout", "--force", "--quiet", "--detach", self._commit)
            if not self._bundle.exists():
                self._write_bundle()

    def _from_bundle(self, copier: peer_client.Copier) -> bool:
        if self._bundle.exists():
            if self._fetch_from_bundle(self._bundle):
                return True
            event_lines.say(f"{self._bundle} is not a history of this commit; not used")
            self._bundle.unlink()
        return copier.copy_from_peer(self._commit, None, self._bundle, self._fetch_from_bundle)

    def _fetch_from_bundle(self, bundle: Path) -> bool:
        """Fetch a bundle's content into the repository; tell whether the commit is there now."""
        with contextlib.suppress(errors.Problem):
            self._run(*self._git, "fetch", "--quiet", "--force", "--tags", str(bundle), "HEAD")
        return self._has_commit()

    def _from_origin(self) -> None:
        address, login = login_in_url.without_login_for_git(self._source["git"])
        branch = self._source["branch"]
        # The whole history, because the fork's build looks for the commit at which it left
        # upstream.
        fetch = (*self._git, "fetch", "--force", "--tags", address)
        try:
            self._run(*fetch, branch, **login)
        except errors.Problem as fault:
            # A fork deletes a merged branch, but its server still gives the commit.
            event_lines.say(f"{address} gives no branch {branch} ({fault}); asking for the commit")
        if not self._has_commit():
            self._run(*fetch, self._commit, **login)

    def _write_bundle(self) -> None:
        new = self._bundle.with_name(f".{self._commit}.new")
        # Left by a git that was cut off, as above.
        new.with_name(f"{new.name}.lock").unlink(missing_ok=True)
        self._run(*self._git, "bundle", "create", "--quiet", str(new), "HEAD", "--tags")
        new.replace(self._bundle)

    def _has_commit(self) -> bool:
        command = (*self._git, "cat-file", "-e", f"{self._commit}^{{commit}}")
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
