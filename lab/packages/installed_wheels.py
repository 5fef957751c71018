"""Make wheels of installed packages, for an index on a machine that cannot download them.

usage: python -m lab.packages.installed_wheels OUT FOLDER... --need PACKAGE...

Each FOLDER holds installed packages, as `site-packages` does, and may hold wheels as they are;
where two hold one package, the first counts. OUT/simple and OUT/torch are indexes of the packages
and of all they need, for the lab's web server. They are whole: a requirement of a package that no
FOLDER has is left out of the wheels, and one for another version than the installed one is
loosened. So what was installed together is what a resolver finds. What an earlier call left in OUT
is made anew.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import shutil
import sys
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from lab.packages.simple_index import project_of, write_index

#: Packages that Lockstep takes from PyTorch's own index.
TORCH = ("torch", "torchvision", "torchaudio", "triton")
_REQUIRES = "Requires-Dist:"
#: What installers add beside the files of a wheel; RECORD is written anew.
_ADDED = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
_EPOCH = (2026, 1, 1, 0, 0, 0)
Packages = Mapping[str, Distribution]


def main(words: Sequence[str]) -> int:
    """Command line; see the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.packages.installed_wheels",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--need", type=Requirement, nargs="+", required=True)
    options = parser.parse_args(words)
    packages = installed_packages(options.folders)
    names = closure(options.need, packages)
    folder = options.out / "wheels"
    # Without it no call has made the others: a folder `torch` is then somebody's package.
    for part in ("simple", "torch", "wheels") if folder.exists() else ():
        shutil.rmtree(options.out / part, ignore_errors=True)
    folder.mkdir(parents=True)
    with ThreadPoolExecutor() as pool:
        wheels = list(pool.map(lambda name: write_wheel(packages, name, folder), names))
    wheels += [path for place in options.folders for path in sorted(place.glob("*.whl"))]
    write_index(options.out / "simple", wheels)
    write_index(options.out / "torch", [path for path in wheels if project_of(path.name) in TORCH])
    size = sum(path.stat().st_size for path in wheels)
    print(f"{len(wheels)} wheels, {size / 2**30:.2f} GiB")
    return 0


def installed_packages(folders: Iterable[Path]) -> dict[str, Distribution]:
    """Normalised name → package, of the first folder that has it with the list of its files."""
    packages: dict[str, Distribution] = {}
    for folder in folders:
        for package in distributions(path=[str(folder)]):
            if package.files is not None:
                packages.setdefault(canonicalize_name(package.metadata["Name"]), package)
    return packages


def closure(requirements: Iterable[Requirement], packages: Packages) -> list[str]:
    """Names of the packages that these need here, with themselves; ValueError if one is absent."""
    waiting = list(requirements)
    if absent := [str(item) for item in waiting if _name(item) not in packages]:
        raise ValueError(f"not installed: {', '.join(absent)}")
    taken_extras: set[tuple[str, str]] = set()
    while waiting:
        requirement = waiting.pop()
        name = _name(requirement)
        for extra in ("", *requirement.extras):
            if name not in packages or (name, extra) in taken_extras:
                continue
            taken_extras.add((name, extra))
            waiting += [
                inner
                for inner in map(Requirement, packages[name].requires or ())
                if inner.marker is None or inner.marker.evaluate({"extra": extra})
            ]
    return sorted({name for name, _ in taken_extras})


def loosened_metadata(metadata: str, packages: Packages) -> str:
    """The text of METADATA with requirements that the installed packages meet."""
    head, blank, text = metadata.partition("\n\n")
    lines = []
    for line in head.splitlines():
        if line.startswith(_REQUIRES):
            requirement = Requirement(line.removeprefix(_REQUIRES).strip())
            package = packages.get(_name(requirement))
            if package is None:
                continue
            if not requirement.specifier.contains(package.version, prereleases=True):
                requirement.specifier = type(requirement.specifier)()
                line = f"{_REQUIRES} {requirement}"
        lines.append(line)
    return "\n".join(lines) + blank + text


def write_wheel(packages: Packages, name: str, folder: Path) -> Path:
    """Write the wheel of an installed package, without compression, into ``folder``.

    Scripts are left out: an installer makes those of entry points again.
    """
    package = packages[name]
    files = {
        str(path): Path(str(path.locate()))
        for path in package.files or ()
        if ".." not in path.parts and path.suffix != ".pyc" and not _is_added(path)
    }
    files = {inside: path for inside, path in files.items() if path.is_file()}
    info = next(inside for inside in files if _is_of_info(inside, "WHEEL")).rpartition("/")[0]
    tags = [
        line.removeprefix("Tag:").strip().split("-")
        for line in files[f"{info}/WHEEL"].read_text().splitlines()
        if line.startswith("Tag:")
    ]
    tag = "-".join(".".join(dict.fromkeys(part)) for part in zip(*tags, strict=True))
    path = folder / f"{name.replace('-', '_')}-{package.version}-{tag}.whl"
    record = []
    with zipfile.ZipFile(path, "w") as archive:
        for inside, file in files.items():
            data = file.read_bytes()
            if inside == f"{info}/METADATA":
                data = loosened_metadata(data.decode(), packages).encode()
            entry = zipfile.ZipInfo(inside, _EPOCH)
            # Triton starts the ptxas that its wheel brings.
            entry.external_attr = file.stat().st_mode << 16
            archive.writestr(entry, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f'"{inside}",sha256={digest},{len(data)}\n')
        record.append(f"{info}/RECORD,,\n")
        archive.writestr(zipfile.ZipInfo(f"{info}/RECORD", _EPOCH), "".join(record))
    return path


def _name(requirement: Requirement) -> str:
    return canonicalize_name(requirement.name)


def _is_added(path: PurePosixPath) -> bool:
    return path.parent.suffix == ".dist-info" and path.name in _ADDED


def _is_of_info(inside: str, name: str) -> bool:
    return inside.count("/") == 1 and inside.endswith(f".dist-info/{name}")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
