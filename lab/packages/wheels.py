"""Metadata-only wheels that stand in for packages which need a GPU or gigabytes."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

_WHEEL_FILE = "Wheel-Version: 1.0\nGenerator: lockstep-lab\nRoot-Is-Purelib: true\n"
_EPOCH = (2026, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class StandInWheel:
    """Name, version and requirements of a wheel that contains no module of Python's.

    Without a module ``importlib.util.find_spec`` finds nothing, so that an engine treats the
    package as absent, while installers and ``importlib.metadata`` see its version. ``files`` are
    pairs of path and text.
    """

    name: str
    version: str
    requires: tuple[str, ...] = ()
    tag: str = field(default="py3-none-any", repr=False)
    files: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def file_name(self) -> str:
        return f"{self.name.replace('-', '_')}-{self.version}-{self.tag}.whl"

    def metadata(self) -> str:
        lines = [
            "Metadata-Version: 2.1",
            f"Name: {self.name}",
            f"Version: {self.version}",
            "Summary: Stand-in of the Lockstep lab: metadata only, no code",
            *(f"Requires-Dist: {requirement}" for requirement in self.requires),
        ]
        return "\n".join(lines) + "\n"


def write_wheel(wheel: StandInWheel, folder: Path) -> Path:
    """Write the wheel into ``folder``; the same wheel has the same bytes every time."""
    info = f"{wheel.name.replace('-', '_')}-{wheel.version}.dist-info"
    about = f"{_WHEEL_FILE}Tag: {wheel.tag}\n"
    contents = {**dict(wheel.files), f"{info}/METADATA": wheel.metadata(), f"{info}/WHEEL": about}
    record = "".join(f"{name},{_record_hash(text)}\n" for name, text in contents.items())
    contents[f"{info}/RECORD"] = record + f"{info}/RECORD,,\n"
    path = folder / wheel.file_name
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in contents.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), text)
    return path


def _record_hash(text: str) -> str:
    data = text.encode()
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"sha256={digest},{len(data)}"


def read_metadata(path: Path) -> bytes:
    """The METADATA file of any wheel, as indexes serve it beside the wheel."""
    with zipfile.ZipFile(path) as archive:
        name = next(name for name in archive.namelist() if _is_metadata(name))
        return archive.read(name)


def _is_metadata(name: str) -> bool:
    return name.count("/") == 1 and name.endswith(".dist-info/METADATA")
