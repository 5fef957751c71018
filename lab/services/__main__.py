"""Runs one server of the lab; started by the lab's supervisor through its path."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
# Started by path, Python puts this folder first; the package's own parent is what is needed.
sys.path = [str(_PACKAGE.parent.parent), *(p for p in sys.path if Path(p).resolve() != _PACKAGE)]


def main() -> None:
    """Parse the command line and serve until the process is ended."""
    parser = argparse.ArgumentParser(prog="lab-service", description=__doc__)
    parser.add_argument("server", choices=("web", "git", "hub", "registry", "proxy"))
    parser.add_argument("content", type=Path, nargs="*", help="folders of content to serve")
    parser.add_argument("--state", type=Path, required=True, help="the lab's state folder")
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_intermixed_args()
    place = (options.state, options.address, options.port)
    if options.server == "web":
        from lab.http import web

        web.serve(options.content, *place)
    elif options.server == "git":
        from lab.git import git_server

        git_server.serve(options.content[0], *place)
    elif options.server == "hub":
        from lab.hub import hub

        hub.serve(options.content[0], *place)
    elif options.server == "registry":
        from lab.images import registry

        registry.serve(options.content[0], *place)
    else:
        from lab.http import proxy

        proxy.serve(*place)


if __name__ == "__main__":
    main()
