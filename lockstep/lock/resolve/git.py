"""Branches of git repositories to commits, and content of commits; nothing is cloned whole."""

from __future__ import annotations

from pathlib import Path

from lockstep.core.digest import is_commit
from lockstep.core.errors import ResolveError
from lockstep.lock.moving import GitItem
from lockstep.lock.packages import mirror_url
from lockstep.lock.pins import GitPin
from lockstep.lock.resolve.http import Network, without_credentials
from lockstep.lock.resolve.program import Result, run
from lockstep.onhost.fetch import login_in_url

# ls-remote is one small answer; on a bad link to a large forge it took seconds, never minutes.
LIMIT_S = 60.0
# Fetching the tree of one commit of a large repository, or the history of one.
FETCH_S = 600.0
_SILENT = {
    # git must not wait for a person: a private or misspelt repository would ask for a password.
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "SSH_ASKPASS": "true",
    "LC_ALL": "C",
}


def resolve_git(item: GitItem, network: Network) -> GitPin:
    """Return the commit at the head of the branch; a commit that was asked for stays as it is.

    Raises:
        ResolveError: no such repository or branch, or no contact to the server.
    """
    if item.commit is not None:
        return GitPin(item.branch, item.commit)
    public_url, login = login_in_url.without_login_for_git(mirror_url(item.url, network.sources))
    heads = f"refs/heads/{item.branch}"
    argv = ["git", "ls-remote", "--", public_url, heads, f"refs/tags/{item.branch}"]
    # Tried twice: links fail for a moment, and nothing was changed.
    for _ in range(2):
        result = run(argv, proxy=network.proxy, environment=_SILENT | login, limit_s=LIMIT_S)
        if result.returncode == 0:
            break
    else:
        raise ResolveError(
            "git cannot read the repository",
            where=public_url,
            found=_reason(result.stderr) or f"exit code {result.returncode}",
            remedy="Check the URL, the network and proxy, or name a mirror under sources.git.",
        )
    lines = [line.partition("\t") for line in result.stdout.splitlines()]
    commits = {name: commit for commit, _, name in lines}
    commit = commits.get(heads, "")
    if not is_commit(commit):
        is_tag = f"refs/tags/{item.branch}" in commits
        raise ResolveError(
            f"the repository has no branch {item.branch!r}",
            where=public_url,
            found="a tag of that name" if is_tag else "neither branch nor tag of that name",
            remedy="Give the tag's commit." if is_tag else "Correct the branch, or give a commit.",
        )
    return GitPin(item.branch, commit)


class GitRepository:
    """Commits in an empty folder; their content is fetched when it is asked for."""

    def __init__(self, folder: Path, network: Network) -> None:
        self.folder, self.network = folder, network
        self._login: dict[str, str] = {}
        self.where = str(folder)
        self.git("init", "--quiet")

    def fetch(
        self, remote: str, item: GitItem, commit: str | None = None, *, history: bool = True
    ) -> None:
        """Fetch a branch as REMOTE/BRANCH, or one commit of it.

        With ``history`` the commits before come too, else the names of the commit's files.

        Raises:
            ResolveError: it cannot be fetched.
        """
        url, self._login = login_in_url.without_login_for_git(
            mirror_url(item.url, self.network.sources)
        )
        self.where = f"{url} at {commit[:12]}" if commit else f"{url} {item.branch}"
        without = "tree:0" if history else "blob:none"
        self.git("remote", "add", remote, url)
        self.git("config", f"remote.{remote}.promisor", "true")
        self.git("config", f"remote.{remote}.partialclonefilter", without)
        local_ref = f"refs/remotes/{remote}/{item.branch}"
        head = "HEAD" if item.branch == "HEAD" else f"refs/heads/{item.branch}"
        ways: list[tuple[str, ...]] = [(remote, f"+{head}:{local_ref}")]
        if commit:
            # Some servers give only the commit that a branch points at, and the branch may have
            # moved.
            ways.insert(0, (remote, commit) if history else ("--depth=1", remote, commit))
        for way in ways:
            result = self.git("fetch", "--quiet", "--no-tags", f"--filter={without}", *way)
            if self.git("cat-file", "-e", f"{commit or local_ref}^{{commit}}").returncode == 0:
                return
        raise ResolveError(
            "the commit cannot be fetched",
            where=self.where,
            found=_reason(result.stderr) or "not on the branch",
            remedy="Check the network and proxy, name a mirror under sources.git, or lock again: "
            "`lockstep update` resolves the branch anew.",
        )

    def git_output(self, *words: str) -> str:
        """Return the output of a git command; ResolveError where it fails."""
        result = self.git(*words)
        if result.returncode != 0:
            raise ResolveError(
                f"git {words[0]} failed",
                where=self.where,
                found=_reason(result.stderr),
                remedy="Check the network and proxy, or name a mirror under sources.git.",
            )
        return result.stdout

    def git(self, *words: str) -> Result:
        """Run one git command in the folder and return its result; it may fail."""
        argv = ["git", "-C", str(self.folder), *words]
        return run(
            argv, proxy=self.network.proxy, environment=_SILENT | self._login, limit_s=FETCH_S
        )


def _reason(errors: str) -> str:
    """Return the first line of git's errors that says what is wrong."""
    lines = [line.strip() for line in without_credentials(errors).splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith(("fatal:", "remote:", "ERROR:"))]
    return (fatal or lines or [""])[0].removeprefix("fatal: ")[:160]
