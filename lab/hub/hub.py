"""A Hugging Face endpoint: the part of the API that ``huggingface_hub`` downloads models with."""

from __future__ import annotations

import re
from pathlib import Path

from lab.core.service import advance
from lab.http.access_log import AccessLog, log_path
from lab.http.http_server import Handler, Server
from lab.hub import hub_store
from lab.hub.hub_store import Repository, StoredFile

#: The one token that may read gated repositories.
ACCEPTED_TOKEN = "hf_lab_licence_accepted"

_NAME = r"(?P<name>[^/]+/[^/]+)"
_API = re.compile(rf"/api/models/{_NAME}(?:/(?P<what>[a-z-]+)(?:/(?P<rest>.+))?)?")
_RESOLVE = re.compile(rf"/{_NAME}/resolve/(?P<revision>[^/]+)/(?P<path>.+)")


class HubServer(Server):
    """Serves the repositories below ``root``."""

    def __init__(self, address: tuple[str, int], root: Path, log: AccessLog) -> None:
        self.root = root
        super().__init__(address, HubHandler, log)


class HubHandler(Handler):
    server: HubServer

    def respond(self, path: str, query: str) -> None:
        if path == "/health":
            self.send_json({"status": "ok"})
        elif match := _API.fullmatch(path):
            self._api(match["name"], match["what"] or "revision", match["rest"] or "main")
        elif match := _RESOLVE.fullmatch(path):
            self._resolve(match["name"], match["revision"], match["path"])
        else:
            self.send_error_text(404, "no such address")

    def planted_headers(self, status: int) -> dict[str, str]:
        """The headers of a planted error: 401 and 403 say that the licence was not accepted."""
        return {"X-Error-Code": "GatedRepo"} if status in (401, 403) else {}

    def _refuse(self, status: int, code: str, text: str) -> None:
        self.send_error_text(status, text, {"X-Error-Message": text, "X-Error-Code": code})

    def _find(self, name: str, revision: str) -> tuple[Repository, str] | None:
        """Repository and commit; answers the request itself when one of them is unknown."""
        repository = hub_store.load(self.server.root, name)
        if repository is None:
            self._refuse(401, "RepoNotFound", "Invalid username or password.")
            return None
        commit = repository.resolve(revision)
        if commit is None:
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return None
        return repository, commit

    def _api(self, name: str, topic: str, subpath: str) -> None:
        revision, _, folder = subpath.partition("/")
        repository_commit = self._find(name, revision)
        if repository_commit is None:
            return
        repository, commit = repository_commit
        if topic == "revision":
            self.send_json(model_info(name, repository, commit))
        elif topic == "tree":
            self.send_json(tree(repository, commit, folder))
        elif topic == "refs":
            self.send_json(references(repository))
        elif topic == "commits":
            history = commits(repository)
            self.send_json(history, {"X-Total-Count": str(len(history))})
        else:
            self.send_error_text(404, f"the lab's hub has no {topic}")

    def _resolve(self, name: str, revision: str, path: str) -> None:
        repository_commit = self._find(name, revision)
        if repository_commit is None:
            return
        repository, commit = repository_commit
        if repository.is_gated and self.headers.get("Authorization") != f"Bearer {ACCEPTED_TOKEN}":
            text = f"Access to model {name} is restricted. You must accept its licence."
            self._refuse(401, "GatedRepo", text)
            return
        file = repository.revisions[commit].files.get(path)
        if file is None:
            self._refuse(404, "EntryNotFound", "Entry not found")
            return
        headers = {"X-Repo-Commit": commit, "ETag": f'"{file.etag}"'}
        if file.sha256:
            headers |= {"X-Linked-Size": str(file.size), "X-Linked-ETag": f'"{file.sha256}"'}
        self.send_file(hub_store.blob_path(self.server.root, name, file), headers)


def model_info(name: str, repository: Repository, commit: str) -> dict[str, object]:
    """The answer of ``/api/models/NAME/revision/REVISION``."""
    revision = repository.revisions[commit]
    licence = repository.licence
    siblings = [_sibling(path, file) for path, file in revision.files.items()]
    return {
        "_id": commit[:24],
        "id": name,
        "modelId": name,
        "sha": commit,
        "author": name.split("/")[0],
        "lastModified": revision.date,
        "createdAt": next(iter(repository.revisions.values())).date,
        "private": False,
        "disabled": False,
        "gated": "auto" if repository.is_gated else False,
        "downloads": 0,
        "likes": 0,
        "tags": [f"license:{licence}"] if licence else [],
        "cardData": {"license": licence} if licence else {},
        "siblings": siblings,
    }


def _sibling(path: str, file: StoredFile) -> dict[str, object]:
    entry: dict[str, object] = {"rfilename": path, "size": file.size, "blobId": file.oid}
    if file.sha256:
        entry["lfs"] = {"sha256": file.sha256, "size": file.size, "pointerSize": 134}
    return entry


def _entry(path: str, file: StoredFile) -> dict[str, object]:
    entry: dict[str, object] = {
        "type": "file",
        "oid": file.oid,
        "size": file.size,
        "path": path,
    }
    if file.sha256:
        entry["lfs"] = {"oid": file.sha256, "size": file.size, "pointerSize": 134}
    return entry


def tree(repository: Repository, commit: str, folder: str) -> list[dict[str, object]]:
    """The answer of ``/api/models/NAME/tree/REVISION``: every file below the folder."""
    prefix = folder.rstrip("/") + "/" if folder else ""
    files = repository.revisions[commit].files
    return [_entry(path, file) for path, file in files.items() if path.startswith(prefix)]


def references(repository: Repository) -> dict[str, object]:
    """The answer of ``/api/models/NAME/refs``."""

    def reference_entries(kind: str, references: object) -> list[dict[str, str]]:
        assert isinstance(references, dict)
        return [
            {"name": name, "ref": f"refs/{kind}/{name}", "targetCommit": commit}
            for name, commit in references.items()
        ]

    return {
        "branches": reference_entries("heads", repository.branches),
        "tags": reference_entries("tags", repository.tags),
        "converts": [],
    }


def commits(repository: Repository) -> list[dict[str, object]]:
    """The answer of ``/api/models/NAME/commits/main``, newest first."""
    return [
        {"id": commit, "title": entry.title, "message": "", "authors": [], "date": entry.date}
        for commit, entry in reversed(list(repository.revisions.items()))
    ]


def serve(content: Path, state: Path, address: str, port: int) -> None:
    """Serve this lab's own copy of the repositories until the process is ended.

    A test may add revisions (``hub_store.commit``) in ``<state>/services/hub/content``.
    """
    root = advance(state, "hub", content, hub_store.merge)
    HubServer((address, port), root, AccessLog(log_path(state, "hub"))).serve_forever()
