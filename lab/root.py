"""The root file system that all stand-in Sparks share, and the packages they install later."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from lab.core import debian
from lab.core.cache import build_once, fingerprint
from lab.core.errors import LabError
from lab.core.run import run

Report = Callable[[str], None]

SUITE = "trixie"
#: Only for python3.11: the CPU torch that the lab's engine uses is built for it.
OLDER_SUITE = "bookworm"
#: Packages of a fresh DGX OS.
PACKAGES = [
    "systemd",
    "systemd-sysv",
    "dbus",
    "dbus-user-session",
    "libpam-systemd",
    "openssh-server",
    "sudo",
    "python3",
    "python3.11",
    "libnuma1",
    "curl",
    "ca-certificates",
    "iproute2",
    "iputils-ping",
    "procps",
    "iptables",
    "docker.io",
    "docker-cli",
    "docker-compose",
    # Assumed on a Spark, because DKMS and nvcc need a compiler; not checked on a real one.
    "g++",
    "kmod",
    "less",
    "nano",
    "locales",
    "tzdata",
    "lsb-release",
]
#: Packages that a deploy installs: in the lab's own repository, absent from the root.
LATER = [
    "python3-dev",
    "python3-venv",
    "python3-pip",
    "ninja-build",
    "git",
    "rsync",
    "jq",
    "earlyoom",
    "polkitd",
    "ufw",
    "nftables",
    "netplan.io",
    "python3.11-dev",
    "caddy",
    "prometheus",
    "prometheus-alertmanager",
    "prometheus-node-exporter",
    "restic",
]
_UNUSED_FILES = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*")
_GUEST = Path(__file__).with_name("guest")
#: Raise when this module builds something different from the same inputs.
_RECIPE = "3"


@dataclass
class Progress:
    """The progress of mmdebstrap, read from its own and apt's output."""

    packages: int = 0
    fetched_packages: int = 0
    unpacked_packages: int = 0
    set_up: int = 0

    def read(self, line: str) -> str | None:
        """The text for the user after ``line``, or None when nothing moved."""
        if total := re.search(r"(\d+) newly installed", line):
            self.packages += int(total[1])
        elif line.startswith("Get:"):
            self.fetched_packages += 1
            return (
                f"package {self.fetched_packages} of {max(self.packages, self.fetched_packages)} "
                "fetched"
            )
        elif line.startswith("Unpacking "):
            self.unpacked_packages += 1
            return (
                f"package {self.unpacked_packages} of "
                f"{max(self.packages, self.unpacked_packages)} unpacked"
            )
        elif line.startswith("Setting up "):
            self.set_up += 1
            return f"package {self.set_up} of {max(self.packages, self.set_up)} set up"
        return None


def identity() -> str:
    """The name of the build: changes with the package lists, the guest files and the recipe."""
    inputs: list[str | bytes | Path] = [
        _RECIPE,
        SUITE,
        OLDER_SUITE,
        *PACKAGES,
        *LATER,
        *_UNUSED_FILES,
        _GUEST,
    ]
    return fingerprint(inputs)


def prepare(cache: Path, report: Report) -> Path:
    """Build the root and the repository unless the cache has them; returns the root's folder.

    The repository of ``LATER`` with its dependencies is ``cache/apt`` afterwards.
    Raises ``LabError`` with mmdebstrap's last lines when it fails.
    """
    folder = build_once(
        cache / f"root-{identity()}", lambda new: _build(new, report), report, "root"
    )
    _point(cache / "apt", folder / "apt")
    folder.touch()
    for old in outdated_roots(cache, Path("/proc/mounts").read_text()):
        shutil.rmtree(old, ignore_errors=True)
    return folder / "root"


def outdated_roots(cache: Path, mounts: str) -> list[Path]:
    """Built roots that no host has mounted, except the two used last; 0.8 GB each."""
    used_last = sorted(
        (path for path in cache.glob("root-*") if path.is_dir() and not path.suffix),
        key=lambda path: path.stat().st_mtime,
        reverse=True,
    )
    return [path for path in used_last[2:] if f"{path}/" not in mounts]


def _build(folder: Path, report: Report) -> None:
    root, packages = folder / "root", folder / "apt"
    packages.mkdir()
    folder.chmod(0o755)
    environment = os.environ | {
        "LOCKSTEP_LAB_LATER": " ".join(LATER),
        "LOCKSTEP_LAB_APT": str(packages),
        "TMPDIR": str(folder),
    }
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        guest = Path(temporary) / "guest"
        shutil.copytree(_GUEST, guest, ignore=shutil.ignore_patterns("__pycache__"))
        _run(_command(root, guest / "customize"), environment, report)
    report("repository: listing packages")
    index_repository(packages)


def _command(root: Path, customize: Path) -> list[str]:
    source = debian.mirror()
    options = [f"--dpkgopt=path-exclude={pattern}" for pattern in _UNUSED_FILES]
    options += [f"--aptopt={setting}" for setting in debian.kept_settings()]
    return [
        "mmdebstrap",
        "--mode=root",
        "--variant=minbase",
        "--verbose",
        "--format=directory",
        "--dpkgopt=force-unsafe-io",
        *options,
        f"--include={','.join(PACKAGES)}",
        f"--customize-hook={customize}",
        SUITE,
        str(root),
        f"deb {source} {SUITE} main",
        f"deb {source} {OLDER_SUITE} main",
    ]


def _run(argv: list[str], environment: dict[str, str], report: Report) -> None:
    progress = Progress()
    last: list[str] = []
    with subprocess.Popen(
        argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            last = [*last[-7:], line.rstrip()]
            if message := progress.read(line):
                report(message)
    if process.returncode != 0:
        raise LabError(
            "the stand-in Sparks' root cannot be built:\n  " + "\n  ".join(last),
            "Check this machine's apt (apt-get update) and run the command again.",
        )


def index_repository(folder: Path) -> None:
    """Write ``Packages`` and ``Release`` of a flat apt repository of the .deb files in it."""
    listing = run(["env", f"--chdir={folder}", "dpkg-scanpackages", "--multiversion", "."])
    (folder / "Packages").write_text(listing)
    digest = hashlib.sha256(listing.encode()).hexdigest()
    (folder / "Release").write_text(
        "Origin: lockstep-lab\nLabel: lockstep-lab\nSuite: lab\nCodename: lab\n"
        f"Date: {datetime.now(UTC):%a, %d %b %Y %H:%M:%S} UTC\n"
        f"SHA256:\n {digest} {len(listing.encode())} Packages\n"
    )
    for file in (folder, *folder.iterdir()):
        file.chmod(0o755 if file.is_dir() else 0o644)


def _point(link: Path, target: Path) -> None:
    """Make ``link`` a symbolic link to ``target``, replacing what it was in one step."""
    if link.is_symlink() and link.readlink() == target:
        return
    new = link.with_name(link.name + ".new")
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    new.replace(link)
