"""Download pinned model weights to the Hugging Face cache, check them once, repair broken files.

usage: fetch-weights SPEC.json [--token-file FILE] [--small]

Files that another Spark of this deploy has are copied from it; those that an earlier host is
downloading are waited for; the rest comes from the hub. Resumes; several files at a time; a
complete repository costs no network. Every file is compared with its hash once, LFS files by
SHA-256, others by git's id; a stamp keeps a later run from reading it again. A corrupt file is
removed and downloaded again once. With --small only the small files, such as configurations.

exit codes: 0 everything is there and right, 1 a file could not be had, 2 wrong use,
            3 no access (licence, token), 4 not found, 5 disk full
"""

from __future__ import annotations

from pathlib import Path

from lockstep.onhost.core import errors, layout, program_command_lines
from lockstep.onhost.fetch import announced_fetches, peer_client
from lockstep.onhost.weights import repository_download, weights_spec, weights_state

# The name that `lockstep.deploy.copying` uses for these files before this program begins.
CLAIM = "weights"


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Run the command line; see the module's docstring."""
    parser = program_command_lines.parser(__doc__)
    parser.add_argument("spec", type=Path)
    parser.add_argument("--token-file", type=Path, metavar="FILE")
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args(argv)
    try:
        spec = weights_spec.parse_spec(options.spec.read_text(encoding="utf-8"))
        token = _hub_token(options.token_file)
    except OSError as error:
        raise errors.Problem(f"{error.filename}: {error.strerror}", errors.EXIT_USAGE) from error
    except weights_spec.WeightsSpecError as error:
        raise errors.Problem(f"{options.spec}: {error}", errors.EXIT_USAGE) from error
    if options.small:
        spec = spec.small_files_spec()
    paths = paths or layout.Paths()
    copier = peer_client.Copier(peer_client.newest_lease(paths))
    # Peers wait for the claim named "weights", which comes later.
    name = "small" if options.small else CLAIM
    with announced_fetches.hold_claim(paths, name, weights_state.absent_content(spec)) as claim:
        store = repository_download.WeightsStore(spec, token, copier, claim)
        store.report_incomplete()
        for repository in spec.repositories:
            store.complete_repository(repository, "small files" if options.small else "complete")
    copier.report_copies("weights")
    return errors.EXIT_DONE


def _hub_token(path: Path | None) -> str | None:
    # The environment would show it in /proc; a file has a mode. The deploy always names the path;
    # only gated repositories need a file there.
    if path is None or not path.exists():
        return None
    return path.read_text(encoding="utf-8").strip() or None
