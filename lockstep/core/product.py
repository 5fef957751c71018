"""The product's own files beside its code: an installation has them in the package.

In a checkout these names of the package are links to what is at its top. Nobody edits them; what an
owner writes is in the owner's folder (`inventory_file.folder_of`).
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
# Resolved, so that messages name a file as a reader of the checkout finds it.
CATALOGUE = (_PACKAGE / "catalogue").resolve()
TEMPLATES = (_PACKAGE / "templates").resolve()
#: What `lockstep help` shows.
DOCS = (_PACKAGE / "docs").resolve()
#: What `lockstep init` gives to an owner.
OWNER = TEMPLATES / "owner"
#: Group data that every host has: `from lockstep.defaults import targets`.
DEFAULTS = (_PACKAGE / "defaults.py").resolve()
