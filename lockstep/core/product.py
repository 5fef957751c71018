"""The product's own files beside its code; an installation has them in the package.

In a checkout these names of the package are links to the folders at its top. Nobody edits them; an
owner's own files are in the owner's folder (`inventory_file.folder_of`).
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
# Resolved, so that messages name a file as a reader of the checkout finds it.
CATALOGUE = (_PACKAGE / "catalogue").resolve()
TEMPLATES = (_PACKAGE / "templates").resolve()
#: The pages that `lockstep help` shows.
DOCS = (_PACKAGE / "docs").resolve()
#: The files that `lockstep init` gives to an owner.
OWNER = TEMPLATES / "owner"
#: Group data of every host: `from lockstep.defaults import models`.
DEFAULTS = (_PACKAGE / "defaults.py").resolve()
