"""Branches of git repositories to commits, and what commits hold: nothing is cloned whole."""

from __future__ import annotations

from pathlib import Path

from lockstep.core.digest import is_commit
from lockstep.core.errors import ResolveError
from lockstep.lock.moving import GitWanted
from lockstep.lock.packages import mirrored
from lockstep.lock.pins import GitPin
from lockstep.lock.resolve.http import Network, without_credentials
from lockstep.lock.resolve.program import Result, run
from lockstep.onhost.fetch import url_login

# ls-remote is one small answer; on a bad link to a large forge it took seconds, never minutes.
LIMIT_S = 60.0
# Fetching the tree of one commit of a large repository, or the history of one.
FETCH_S = 600.0
_SILENT = {
    # Never wait for a human: a private or misspelt repository would ask for a password.
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "SSH_ASKPASS": "true",
    "LC_ALL": "C",
}


def resolve_git(item: GitWanted, network: Network) -> GitPin:
    """The commit at the head of the branch; a commit that was asked for stays as it is.

    Raises:
        ResolveError: no such repository or branch, or it cannot be reached.
    """
    if item.commit is not None:
        return GitPin(item.branch, item.commit)
    shown, login = url_login.for_git(mirrored(item.url, network.sources))
    heads = f"refs/heads/{item.branch}"
    argv = ["git", "ls-remote", "--", shown, heads, f"refs/tags/{item.branch}"]
    # Twice where it must be: links fail for a moment, and nothing was changed.
    for _ in range(2):
        result = run(argv, proxy=network.proxy, environment=_SILENT | login, limit_s=LIMIT_S)
        if result.returncode == 0:
            break
    else:
        raise ResolveError(
            "git cannot read the repository",
            where=shown,
            found=_reason(result.stderr) or f"exit code {result.returncode}",
            remedy="Check the URL, the network and proxy, or name a mirror under sources.git.",
        )
    lines = [line.partition("\t") for line in result.stdout.splitlines()]
    found = {name: commit for commit, _, name in lines}
    commit = found.get(heads, "")
    if not is_commit(commit):
        is_tag = f"refs/tags/{item.branch}" in found
        raise ResolveError(
            f"the repository has no branch {item.branch!r}",
            where=shown,
            found="a tag of that name" if is_tag else "neither branch nor tag of that name",
            remedy="Give the tag's commit." if is_tag else "Correct the branch, or give a commit.",
        )
    return GitPin(item.branch, commit)


class Repository:
    """Commits in an empty folder; what is in them is fetched when it is asked for."""

    def __init__(self, folder: Path, network: Network) -> None:
        self.folder, self.network = folder, network
        self._login: dict[str, str] = {}
        self.where = str(folder)
        self.git("init", "--quiet")

    def fetch(
        self, remote: str, item: GitWanted, commit: str | None = None, *, history: bool = True
    ) -> None:
        """Bring a branch as REMOTE/BRANCH, or one commit of it.

        With ``history`` what it stands on comes along, and else the names of its files.

        Raises:
            ResolveError: it cannot be fetched.
        """
        url, self._login = url_login.for_git(mirrored(item.url, self.network.sources))
        self.where = f"{url} at {commit[:12]}" if commit else f"{url} {item.branch}"
        without = "tree:0" if history else "blob:none"
        self.git("remote", "add", remote, url)
        self.git("config", f"remote.{remote}.promisor", "true")
        self.git("config", f"remote.{remote}.partialclonefilter", without)
        here = f"refs/remotes/{remote}/{item.branch}"
        head = "HEAD" if item.branch == "HEAD" else f"refs/heads/{item.branch}"
        ways: list[tuple[str, ...]] = [(remote, f"+{head}:{here}")]
        if commit:
            # Some servers give only what a branch points at, which may have moved on meanwhile.
            ways.insert(0, (remote, commit) if history else ("--depth=1", remote, commit))
        for way in ways:
            done = self.git("fetch", "--quiet", "--no-tags", f"--filter={without}", *way)
            if self.git("cat-file", "-e", f"{commit or here}^{{commit}}").returncode == 0:
                return
        raise ResolveError(
            "the commit cannot be fetched",
            where=self.where,
            found=_reason(done.stderr) or "not on the branch",
            remedy="Check the network and proxy, name a mirror under sources.git, or lock again: "
            "`lockstep update` resolves the branch anew.",
        )

    def said(self, *words: str) -> str:
        """What a command of git says; ResolveError where it fails."""
        done = self.git(*words)
        if done.returncode != 0:
            raise ResolveError(
                f"git {words[0]} failed",
                where=self.where,
                found=_reason(done.stderr),
                remedy="Check the network and proxy, or name a mirror under sources.git.",
            )
        return done.stdout

    def git(self, *words: str) -> Result:
        """One command of git in the folder; it may fail."""
        argv = ["git", "-C", str(self.folder), *words]
        return run(
            argv, proxy=self.network.proxy, environment=_SILENT | self._login, limit_s=FETCH_S
        )


def _reason(errors: str) -> str:
    """git's own words: the first line that says what is wrong."""
    lines = [line.strip() for line in without_credentials(errors).splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith(("fatal:", "remote:", "ERROR:"))]
    return (fatal or lines or [""])[0].removeprefix("fatal: ")[:160]
