"""The wheel of vLLM from which a fork's build takes its compiled parts.

vLLM's own setup.py looks for it while it builds: the wheel of the commit at which the branch left
upstream's `main`, from a list on vLLM's server that has no hashes. Here the wheel is found
beforehand in the same way, and read once for its hash.
"""

from __future__ import annotations

import posixpath
import tempfile
from pathlib import Path
from urllib.parse import unquote

from lockstep.core.digest import is_commit
from lockstep.core.errors import ResolveError
from lockstep.inventory.settings import Proxy
from lockstep.lock.moving import GitItem, PrecompiledItem
from lockstep.lock.packages import mirror_url
from lockstep.lock.pins import PrecompiledPin
from lockstep.lock.resolve.git import GitRepository
from lockstep.lock.resolve.http import Network, ask, hash_download, without_credentials

UPSTREAM_BRANCH = "main"
_REMEDY = (
    "Name another commit (engine.precompiled_commit) or build (engine.precompiled_variant), or set "
    "engine.precompiled to False."
)


def resolve_precompiled(
    item: PrecompiledItem, tree: str, network: Network, old: PrecompiledPin | None = None
) -> PrecompiledPin:
    """Return the wheel for a fork at the commit ``tree``.

    A wheel with the name and size of ``old``, which was locked, has its hash. ResolveError where
    there is no such wheel, or a server does not answer.
    """
    commit = item.commit or _left_upstream_at(item, tree, network)
    path = _path(item, commit, network)
    url = network.sources.vllm_wheel(path)
    if old and old.path == path and _size(url, network.proxy) == old.size:
        file = (old.sha256, old.size)
    else:
        file = hash_download(url, proxy=network.proxy)
    return PrecompiledPin(tree, item.upstream, commit, item.architecture, item.variant, path, *file)


def _path(item: PrecompiledItem, commit: str, network: Network) -> str:
    """Return the path of the wheel on the server."""
    # The format of vLLM's `generate-nightly-index.py` (read 2026-11): the wheels of one build, each
    # with its path from the folder of this list.
    folder = posixpath.join(commit, item.variant, "vllm")
    listing = network.sources.vllm_wheel(f"{folder}/metadata.json")
    answer = ask(listing, proxy=network.proxy)
    if answer.status != 200:
        raise ResolveError(
            f"vLLM's server has no wheels of commit {commit[:12]}"
            + (f" as {item.variant}" if item.variant else ""),
            where=answer.url,
            found=f"HTTP {answer.status}",
            remedy=_REMEDY,
        )
    rows = answer.json()
    platforms = []
    for row in rows if isinstance(rows, list) else ():
        if not isinstance(row, dict):
            continue
        platform = str(row.get("platform_tag"))
        platforms.append(platform)
        # The first one counts, as for vLLM's own build.
        if row.get("package_name") == "vllm" and item.architecture in platform and "path" in row:
            # A path that leaves the server begins with "..", and `lockstep.lock.pins` refuses it.
            return posixpath.normpath(posixpath.join(folder, unquote(str(row["path"]))))
    raise ResolveError(
        f"vLLM's server has no wheel of commit {commit[:12]} for {item.architecture}",
        where=answer.url,
        found=", ".join(platforms) or "an empty list",
        remedy=_REMEDY,
    )


def _size(url: str, proxy: Proxy) -> int | None:
    answer = ask(url, proxy=proxy, method="HEAD")
    length_text = answer.headers.get("Content-Length", "")
    return int(length_text) if answer.status == 200 and length_text.isdigit() else None


def _left_upstream_at(item: PrecompiledItem, tree: str, network: Network) -> str:
    """Return the newest commit that the fork and upstream's branch share."""
    with tempfile.TemporaryDirectory(prefix="lockstep-") as folder:
        history = GitRepository(Path(folder), network)
        history.fetch("fork", item.tree, tree)
        history.fetch("upstream", GitItem(item.upstream, UPSTREAM_BRANCH))
        base = history.git("merge-base", tree, f"upstream/{UPSTREAM_BRANCH}").stdout.strip()
    if not is_commit(base):
        raise ResolveError(
            "the fork and upstream have no commit in common",
            where=without_credentials(mirror_url(item.tree.url, network.sources)),
            found=f"{tree[:12]} here, {UPSTREAM_BRANCH} of {without_credentials(item.upstream)}",
            remedy="Correct engine.upstream, or name the commit (engine.precompiled_commit).",
        )
    return base
