"""Wheels as files named by their hash, from another Spark or an index, kept for the others.

They are what an installer takes: `links` has them under their own names. They are kept after that,
because uv's cache holds them unpacked, and nothing unpacked has the hash of the pin.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from lockstep.onhost.core import common
from lockstep.onhost.environment import wheel_index
from lockstep.onhost.fetch import content, download, growth, peer_client, url_login

WORKERS = 4


class Store:
    """The folder, filled from peers, else from the indexes, several files at a time.

    Args:
        folder: Where the files are.
        indexes: Gives the package indexes; called once one of them is needed.
        copier: Asks the peers.
    """

    def __init__(
        self,
        folder: Path,
        indexes: Callable[[], wheel_index.Indexes],
        copier: peer_client.Copier,
        say: Callable[[str], None] = common.say,
    ) -> None:
        self._folder = folder
        self._indexes = indexes
        self._copier = copier
        self._say = say
        self.links = folder / "wheels"

    def absent(self, wheels: Iterable[wheel_index.Wheel]) -> list[str]:
        """Hashes of those that are not here whole."""
        return [wheel.sha256 for wheel in wheels if not self._whole(wheel)]

    def bring(self, title: str, wheels: Sequence[wheel_index.Wheel]) -> None:
        """Fetch what is not here, and link all under their names. Problem when one cannot be had.

        Args:
            title: What they are for, for lines of progress.
            wheels: What to bring.
        """
        missing = [wheel for wheel in wheels if not self._whole(wheel)]
        if missing:
            of = f"{len(missing)} of {len(wheels)} wheels to fetch"
            self._say(f"{title}: {of}{_total(', {:.0f} MB', missing)}")
            with growth.repeated(lambda: self._say(self._progress(title, missing))):
                self._fetch_all(missing)
        for wheel in wheels:
            self._link(wheel)

    def remove_spoiled(self, wheels: Iterable[wheel_index.Wheel]) -> list[str]:
        """Read every file and remove those that are not what their hash says; their names."""
        spoiled = []
        for wheel in wheels:
            path = self._folder / wheel.sha256
            if path.exists() and not content.matches(path, wheel.sha256):
                path.unlink()
                spoiled.append(wheel.file)
        return spoiled

    def _whole(self, wheel: wheel_index.Wheel) -> bool:
        path = self._folder / wheel.sha256
        return path.exists() and wheel.size in (None, path.stat().st_size)

    def _fetch_all(self, wheels: Sequence[wheel_index.Wheel]) -> None:
        # Large files first: the last minutes should not belong to one lonely file.
        order = sorted(wheels, key=lambda wheel: -(wheel.size or 0))
        with ThreadPoolExecutor(WORKERS) as pool:
            jobs = [pool.submit(self._fetch, wheel) for wheel in order]
            try:
                for job in as_completed(jobs):
                    job.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _fetch(self, wheel: wheel_index.Wheel) -> None:
        path = self._folder / wheel.sha256
        with download.locked(self._folder / ".locks" / wheel.sha256):
            if self._whole(wheel) or self._copier.bring(wheel.sha256, wheel.size, path):
                return
            try:
                download.download(self._source(wheel), path, name=wheel.sha256)
            except wheel_index.Absent as error:
                raise common.Problem(
                    f"{wheel.file} is on no index: {error}. Remedy: `lockstep lock --only "
                    f"{wheel.name}`, or name an index that has it in `sources`"
                ) from error
            except OSError as error:
                again = "; what its server dropped: `lockstep lock --only precompiled`"
                raise common.Problem(
                    f"{wheel.file}: {error.strerror or error}. Remedy: check network, proxy and "
                    f"disk, then run again; it resumes{again if wheel.url else ''}"
                ) from error

    def _source(self, wheel: wheel_index.Wheel) -> Callable[[], download.Source]:
        if wheel.url:
            url, login = url_login.apart(wheel.url)
            source = download.Source(url, wheel.size, login)
            return lambda: source
        indexes = self._indexes()
        return lambda: indexes.source(wheel)

    def _progress(self, title: str, wheels: Sequence[wheel_index.Wheel]) -> str:
        """`engine, vllm: 3 of 12 wheels, 1200 of 9800 MB`, and whom it waits for."""
        whole = sum(map(self._whole, wheels))
        here = 0
        for wheel in wheels:
            path = self._folder / wheel.sha256
            here += _size(path) or _size(path.with_name(path.name + content.PARTIAL))
        return (
            f"{title}: {whole} of {len(wheels)} wheels, {here / 1e6:.0f}"
            f"{_total(' of {:.0f}', wheels)} MB{self._copier.note()}"
        )

    def _link(self, wheel: wheel_index.Wheel) -> None:
        self.links.mkdir(parents=True, exist_ok=True)
        link, target = self.links / wheel.file, f"../{wheel.sha256}"
        if link.is_symlink() and str(link.readlink()) == target:
            return
        new = self.links / f".{wheel.sha256}.{os.getpid()}"
        new.unlink(missing_ok=True)
        new.symlink_to(target)
        new.replace(link)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _total(form: str, wheels: Sequence[wheel_index.Wheel]) -> str:
    """Megabytes of all in a form, "" where an index does not say all sizes."""
    sizes = [wheel.size for wheel in wheels if wheel.size is not None]
    return form.format(sum(sizes) / 1e6) if len(sizes) == len(wheels) else ""
