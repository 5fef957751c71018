"""Branches of git repositories to commits, by `git ls-remote`: nothing is cloned."""

from __future__ import annotations

from lockstep.core.digest import is_commit
from lockstep.core.errors import ResolveError
from lockstep.inventory.settings import Proxy, Sources
from lockstep.lock.moving import GitWanted
from lockstep.lock.packages import mirrored
from lockstep.lock.pins import GitPin
from lockstep.lock.resolve.http import without_credentials
from lockstep.lock.resolve.program import run
from lockstep.onhost.fetch import git_login

# ls-remote is one small answer; on a bad link to a large forge it took seconds, never minutes.
LIMIT_S = 60.0
_SILENT = {
    # Never wait for a human: a private or misspelt repository would ask for a password.
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "SSH_ASKPASS": "true",
    "LC_ALL": "C",
}


def resolve_git(item: GitWanted, *, sources: Sources, proxy: Proxy) -> GitPin:
    """The commit at the head of the branch; a commit that was asked for stays as it is.

    Raises:
        ResolveError: no such repository or branch, or it cannot be reached.
    """
    if item.commit is not None:
        return GitPin(item.branch, item.commit)
    shown, login = git_login.apart(mirrored(item.url, sources))
    heads = f"refs/heads/{item.branch}"
    argv = ["git", "ls-remote", "--", shown, heads, f"refs/tags/{item.branch}"]
    result = run(argv, proxy=proxy, environment=_SILENT | login, limit_s=LIMIT_S)
    if result.code != 0:
        # The same once more: links fail for a moment, and nothing was changed.
        result = run(argv, proxy=proxy, environment=_SILENT | login, limit_s=LIMIT_S)
    if result.code != 0:
        raise ResolveError(
            "git cannot read the repository",
            where=shown,
            found=_reason(result.errors) or f"exit code {result.code}",
            remedy="Check the URL, the network and proxy, or name a mirror under sources.git.",
        )
    lines = [line.partition("\t") for line in result.output.splitlines()]
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


def _reason(errors: str) -> str:
    """git's own words: the first line that says what is wrong."""
    lines = [line.strip() for line in without_credentials(errors).splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith(("fatal:", "remote:", "ERROR:"))]
    return (fatal or lines or [""])[0].removeprefix("fatal: ")[:160]
