"""Wheels as files named by their hash, from a peer or through pip, kept for peers.

An installer takes them from `links`, where they have their own names. They are kept after that,
because uv's cache holds them unpacked, and nothing unpacked has the hash of the pin.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from lockstep.onhost.core import atomic_files, errors, event_lines, file_lock
from lockstep.onhost.fetch import blob_files, growth_report, peer_client

#: Simultaneous copies from peers.
WORKERS = 4
#: Bytes that one run of pip fetches, unless one wheel is larger: a run that fails keeps nothing.
BATCH = 100_000_000
#: Bytes that count for a wheel whose size no index says.
UNKNOWN = BATCH / 16
#: pip fetches every file by its hash, and nothing but the requested files.
_DOWNLOAD = (
    *("-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"),
    *("--no-cache-dir", "--progress-bar", "off", "--timeout", "60"),
    *("--require-hashes", "--no-deps", "--only-binary", ":all:", "--requirement", "/dev/stdin"),
)


class Wheel(NamedTuple):
    """One file of the record of pins.

    `size` is in bytes, None if the index does not say. `url` is the file's address, None if it is
    on an index.
    """

    name: str
    version: str
    file: str
    sha256: str
    size: int | None
    url: str | None = None

    @property
    def requirement(self) -> str:
        """The line of a requirements file that accepts this file alone."""
        requirement_text = (
            f"{self.name} @ {self.url}" if self.url else f"{self.name}=={self.version}"
        )
        return f"{requirement_text} --hash=sha256:{self.sha256}\n"


class Pip(NamedTuple):
    """An interpreter that has pip, and the variables that pip reads."""

    python: str
    variables: Mapping[str, str]


def pip_index_variables(
    index: str | None, more: Sequence[str], other_options: Sequence[str] = ()
) -> dict[str, str]:
    """Return the package indexes as variables for pip: a password must not be an argument.

    Args:
        index: The main one; None leaves the one of pip's own configuration.
        more: Indexes that are asked besides.
        other_options: Addresses of single files.
    """
    addresses = [*filter(None, [index]), *more, *other_options]
    # pip asks a server without TLS only if it is named; every file has its hash.
    plain = [
        urlsplit(address).hostname or "" for address in addresses if address.startswith("http://")
    ]
    environment = {
        "PIP_INDEX_URL": index or "",
        "PIP_EXTRA_INDEX_URL": " ".join(more),
        "PIP_TRUSTED_HOST": " ".join(dict.fromkeys(plain)),
    }
    return {name: value for name, value in environment.items() if value}


class WheelStore:
    """The folder, filled from peers, else by pip; `beat` is called whenever there is progress."""

    def __init__(
        self,
        folder: Path,
        pip: Pip,
        copier: peer_client.Copier,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._folder = folder
        self._pip = pip
        self._copier = copier
        self._beat = beat
        self._under_way = folder / ".pip"
        self._earlier_bytes = 0
        self.links = folder / "wheels"

    def absent_hashes(self, wheels: Iterable[Wheel]) -> list[str]:
        """Return the hashes of wheels that are not here whole."""
        return [wheel.sha256 for wheel in wheels if not self._has_full_size(wheel)]

    def bring_wheels(self, title: str, wheels: Sequence[Wheel]) -> None:
        """Fetch missing wheels, and link all under their names; raise Problem if one cannot be had.

        `title` begins the lines of progress.
        """
        with file_lock.hold_lock(self._folder / ".locks/wheels"):
            self._keep_whole_wheels_of_interrupted_pip(wheels)
            missing = list(
                {
                    wanted_wheel.sha256: wanted_wheel
                    for wanted_wheel in wheels
                    if not self._has_full_size(wanted_wheel)
                }.values()
            )
            if missing:
                of = f"{len(missing)} of {len(wheels)} wheels to fetch"
                event_lines.say(f"{title}: {of}{_total_mb_text(', {:.0f} MB', missing)}")
                with growth_report.call_periodically(
                    lambda: event_lines.say(self._progress_text(title, missing))
                ):
                    self._fetch_missing_wheels(missing)
        for wheel in wheels:
            self._link(wheel)

    def remove_spoiled(self, wheels: Iterable[Wheel]) -> list[str]:
        """Remove every file that does not match its hash; return their names."""
        spoiled_wheels = []
        for wheel in wheels:
            path = self._folder / wheel.sha256
            if path.exists() and not blob_files.matches(path, wheel.sha256):
                path.unlink()
                spoiled_wheels.append(wheel.file)
        return spoiled_wheels

    def _has_full_size(self, wheel: Wheel) -> bool:
        path = self._folder / wheel.sha256
        return path.exists() and wheel.size in (None, path.stat().st_size)

    def _keep_whole_wheels_of_interrupted_pip(self, wheels: Iterable[Wheel]) -> None:
        """Keep the whole files of a pip that was cut off."""
        names = {wheel.file: wheel.sha256 for wheel in wheels}
        for path in self._under_way.rglob("*.whl"):
            sha256 = names.get(path.name)
            if sha256 and blob_files.matches(path, sha256):
                path.replace(self._folder / sha256)
        shutil.rmtree(self._under_way, ignore_errors=True)

    def _fetch_missing_wheels(self, wheels: Sequence[Wheel]) -> None:
        # Large files first: the last minutes should not belong to one lonely file.
        order = sorted(wheels, key=_weight, reverse=True)
        with ThreadPoolExecutor(WORKERS) as pool:
            copied_wheels = zip(order, pool.map(self._copy_from_peer, order), strict=True)
            remaining = [wheel for wheel, is_present in copied_wheels if not is_present]
        for batch in _batches(remaining):
            self._download_batch_by_pip(batch)

    def _copy_from_peer(self, wheel: Wheel) -> bool:
        return self._copier.copy_from_peer(wheel.sha256, wheel.size, self._folder / wheel.sha256)

    def _download_batch_by_pip(self, wheels: Sequence[Wheel]) -> None:
        self._under_way.mkdir()
        result = subprocess.run(
            [self._pip.python, *_DOWNLOAD, "--dest", str(self._under_way)],
            input="".join(wheel.requirement for wheel in wheels),
            # The build's folder has room that the system's folder for temporary files may lack.
            env={**os.environ, **self._pip.variables, "TMPDIR": str(self._under_way)},
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if result.returncode != 0:
            description = wheels[0].file if len(wheels) == 1 else f"{len(wheels)} wheels"
            name = " precompiled" if wheels[0].url else ""
            raise errors.Problem(
                f"pip could not fetch {description}: {' '.join(result.stderr.split())[-500:]}. "
                "Remedy: "
                "check network, proxy, disk and `sources`, then run again; what is not there any "
                f"more: `lockstep update{name}`"
            )
        for wheel in wheels:
            (self._under_way / wheel.file).replace(self._folder / wheel.sha256)
        shutil.rmtree(self._under_way)

    def _progress_text(self, title: str, wheels: Sequence[Wheel]) -> str:
        """Return `engine, vllm: 3 of 12 wheels, 1200 of 9800 MB`, and the peer it waits for."""
        whole = sum(map(self._has_full_size, wheels))
        present_bytes = growth_report.size(self._under_way)
        present_bytes += sum(
            blob_files.bytes_begun(self._folder / wheel.sha256) for wheel in wheels
        )
        if present_bytes != self._earlier_bytes:
            self._beat()
        self._earlier_bytes = present_bytes
        return (
            f"{title}: {whole} of {len(wheels)} wheels, {present_bytes / 1e6:.0f}"
            f"{_total_mb_text(' of {:.0f}', wheels)} MB{self._copier.waiting_note()}"
        )

    def _link(self, wheel: Wheel) -> None:
        self.links.mkdir(parents=True, exist_ok=True)
        link, target = self.links / wheel.file, f"../{wheel.sha256}"
        if not (link.is_symlink() and str(link.readlink()) == target):
            atomic_files.replace_link(link, target)


def _batches(wheels: Iterable[Wheel]) -> Iterator[list[Wheel]]:
    """Split wheels into runs of pip: a run takes a second to start, and takes each package once."""
    batch: list[Wheel] = []
    for wheel in wheels:
        full = sum(map(_weight, [*batch, wheel])) > BATCH
        if batch and (full or wheel.name in {wheel_in_batch.name for wheel_in_batch in batch}):
            yield batch
            batch = []
        batch.append(wheel)
    if batch:
        yield batch


def _weight(wheel: Wheel) -> float:
    return UNKNOWN if wheel.size is None else wheel.size


def _total_mb_text(form: str, wheels: Sequence[Wheel]) -> str:
    """Format the megabytes of all wheels; "" if an index does not say all sizes."""
    sizes = [wheel.size for wheel in wheels if wheel.size is not None]
    return form.format(sum(sizes) / 1e6) if len(sizes) == len(wheels) else ""
