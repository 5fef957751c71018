"""A diff's facts about weights: whole by `stat`, and with `deep` every file by its hash."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from lockstep.onhost.facts import weights
from lockstep.onhost.fetch import announced_fetches, peer_client
from lockstep.onhost.weights import repository_download, weights_spec, weights_state

REVISION, BASE = "a" * 40, "b" * 40
FILES = {"model.safetensors": b"weights", "config.json": b"{}"}


def entry(path: str) -> dict[str, object]:
    body = FILES[path]
    if path.endswith(".safetensors"):
        return {"path": path, "size": len(body), "sha256": hashlib.sha256(body).hexdigest()}
    blob = hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()
    return {"path": path, "size": len(body), "blob": blob}


def question(folder: Path) -> dict[str, object]:
    borrowed_files = {"model": "org/base", "revision": BASE, "files": [entry("config.json")]}
    repository = {"model": "org/own", "revision": REVISION, "borrow": [borrowed_files]}
    repository["files"] = [entry(path) for path in FILES]
    return {"cache_dir": str(folder / "hub"), "endpoint": None, "repositories": [repository]}


def test_what_stat_does_not_show_is_found_by_reading_own_small_and_borrowed_files(tmp_path):
    weights_question = question(tmp_path)
    spec = weights_spec.parse_spec(json.dumps(weights_question))
    store = repository_download.WeightsStore(
        spec, None, peer_client.Copier(None), announced_fetches.Claim(None)
    )
    for part in spec.repositories[0].own_and_borrowed_parts:
        for file in part.files:
            path = spec.snapshot_folder(part.model, part.revision) / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(FILES[file.path])
        assert store.corrupt_files(part) == []
    store.merge_repository(spec.repositories[0])
    assert weights_state.state(spec, spec.repositories[0])["state"] == "complete"

    for path in spec.cache_dir.glob("models--*/snapshots/*/*"):
        earlier_stat = path.stat()
        path.write_bytes(bytes(earlier_stat.st_size))
        os.utime(path, ns=(earlier_stat.st_atime_ns, earlier_stat.st_mtime_ns))
    quick = list(weights.every({"weights": weights_question, "deep": False}))
    deep = list(weights.every({"weights": weights_question, "deep": True}))
    assert {kind for kind, _, _ in quick} == {"weights"}
    assert set(quick) < set(deep)
    own, base = (
        spec.snapshot_folder(part.model, part.revision)
        for part in spec.repositories[0].own_and_borrowed_parts
    )
    files = (own / "model.safetensors", own / "config.json", base / "config.json")
    content_findings = {("weights content", str(file), "other content") for file in files}
    assert set(deep) - set(quick) == content_findings
