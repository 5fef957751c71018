"""A git repository at one commit: from a bundle that this Spark or another has, else its origin.

A bundle is git's own file of a history. Git computes the id of everything in it anew and refuses a
history with holes, so one that yields the commit is right, whoever it came from.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lockstep.onhost.core import errors, file_lock, output
from lockstep.onhost.fetch import peer_client, url_login

#: Runs a command, with more variables by name; errors.Problem when it fails.
Run = Callable[..., None]


class Repository:
    """One working copy, by git itself: uv knows fewer kinds of URL than git.

    `source` has "git" (an address), "branch" and "commit". A bundle in `store` has the name of its
    commit. `run` is for what may take long.
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
        """Bring the commit about, its files as they are in it, and keep a bundle for others."""
        # A git that was cut off leaves its locks behind, and no other git works here.
        for lock in (self._folder / ".git").glob("*.lock"):
            lock.unlink()
        self._run("git", "init", "--quiet", str(self._folder))
        with file_lock.held(self._lock):
            if not self._has() and not self._from_bundle(copier):
                self._from_origin()
            self._run(*self._git, "checkout", "--force", "--quiet", "--detach", self._commit)
            if not self._bundle.exists():
                self._keep()

    def _from_bundle(self, copier: peer_client.Copier) -> bool:
        if self._bundle.exists():
            if self._take(self._bundle):
                return True
            output.say(f"{self._bundle} is not a history of this commit; not used")
            self._bundle.unlink()
        return copier.bring(self._commit, None, self._bundle, self._take)

    def _take(self, bundle: Path) -> bool:
        """Put what is in a bundle into the repository; whether the commit is there now."""
        with contextlib.suppress(errors.Problem):
            self._run(*self._git, "fetch", "--quiet", "--force", "--tags", str(bundle), "HEAD")
        return self._has()

    def _from_origin(self) -> None:
        address, login = url_login.for_git(self._source["git"])
        branch = self._source["branch"]
        # The whole history: the fork's build looks for the commit it left upstream at.
        fetch = (*self._git, "fetch", "--force", "--tags", address)
        try:
            self._run(*fetch, branch, **login)
        except errors.Problem as fault:
            # A fork deletes a branch that is merged, and its server goes on to give the commit.
            output.say(f"{address} gives no branch {branch} ({fault}); asking for the commit")
        if not self._has():
            self._run(*fetch, self._commit, **login)

    def _keep(self) -> None:
        new = self._bundle.with_name(f".{self._commit}.new")
        # Of a git that was cut off, as above.
        new.with_name(f"{new.name}.lock").unlink(missing_ok=True)
        self._run(*self._git, "bundle", "create", "--quiet", str(new), "HEAD", "--tags")
        new.replace(self._bundle)

    def _has(self) -> bool:
        asked = (*self._git, "cat-file", "-e", f"{self._commit}^{{commit}}")
        return subprocess.run(asked, capture_output=True, check=False).returncode == 0
