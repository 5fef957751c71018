"""The Python packages and git sources of a host: what is asked for, and what is pinned."""

from __future__ import annotations

from dataclasses import replace

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from lockstep.errors import InventoryError, ResolveError
from lockstep.moving import GitWanted, PythonWanted, is_commit
from lockstep.pins import Pins, has_python
from lockstep.settings import Settings, Sources

# FlashInfer refuses to import unless these three have one version.
FLASHINFER = ("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache")


def tool_sets(settings: Settings) -> dict[str, PythonWanted]:
    """Tool name → the requirement for it."""
    return {
        tool: _packages(settings, (requirement,), f"tools.{tool}")
        for tool, requirement in settings.tools.items()
    }


def engine_sets(settings: Settings) -> tuple[PythonWanted, ...]:
    """What the engine's venv takes from package indexes, in the order of installation.

    A released vLLM demands exact versions of torch and FlashInfer, so then everything is one set.
    A fork is built against whatever is there: its sets are independent and move one by one.
    """
    engine = settings.engine
    torch = tuple(item for item in (engine.torch, engine.torchvision) if item)
    common = (engine.mistral_common,) if engine.mistral_common else ()
    triple, agree = (_triple(settings), FLASHINFER) if engine.flashinfer else ((), ())
    if engine.git is None:
        together = _packages(settings, (*torch, engine.release, *common, *triple), "engine")
        return (replace(together, with_dependencies=True, agree=agree),)
    # Without torchvision there is nothing that has to fit torch.
    pair = replace(_packages(settings, torch, "engine.torch"), with_dependencies=len(torch) > 1)
    sets = [pair]
    if common:
        sets.append(_packages(settings, common, "engine.mistral_common"))
    if triple:
        flashinfer = _packages(settings, triple, "engine.flashinfer_version")
        sets.append(replace(flashinfer, agree=agree))
    return tuple(sets)


def engine_repositories(settings: Settings) -> tuple[GitWanted, ...]:
    """The git sources of the engine's venv: the fork and transformers, where asked for."""
    engine = settings.engine
    asked = (
        ("engine", engine.git, engine.branch, engine.commit),
        (
            "engine.transformers",
            engine.transformers_git,
            engine.transformers_branch,
            engine.transformers_commit,
        ),
    )
    for key, _, _, commit in asked:
        if commit is not None and not is_commit(commit):
            raise InventoryError(
                f"{key}{'.' if key == 'engine' else '_'}commit is not a whole commit",
                where=settings.name,
                found=repr(commit)[:60],
                allowed="40 hexadecimal digits, or None to resolve the branch",
            )
    return tuple(GitWanted(url, branch, commit) for _, url, branch, commit in asked if url)


def mirrored(url: str, sources: Sources) -> str:
    """The address to use for a git URL: the longest prefix in `sources.git` is replaced."""
    prefixes = [prefix for prefix in sources.git if url.startswith(prefix)]
    if not prefixes:
        return url
    longest = max(prefixes, key=len)
    return sources.git[longest] + url.removeprefix(longest)


def name_of(requirement: str) -> str:
    """The normalised distribution name of a requirement."""
    return canonicalize_name(Requirement(requirement).name)


def _triple(settings: Settings) -> tuple[str, ...]:
    version = settings.engine.flashinfer_version
    try:
        # Glued to a name, "0.6" would be another valid name.
        SpecifierSet(version)
    except InvalidSpecifier as fault:
        raise InventoryError(
            "engine.flashinfer_version is not a version specifier",
            where=settings.name,
            found=repr(version)[:60],
            allowed='"" for the newest, "==VERSION" or "<VERSION"',
        ) from fault
    return tuple(f"{name}{version}" for name in FLASHINFER)


def _packages(settings: Settings, asked: tuple[str, ...], key: str) -> PythonWanted:
    normal = []
    for text in asked:
        try:
            requirement = Requirement(text)
        except InvalidRequirement as fault:
            raise InventoryError(
                f"{key} is not a requirement",
                where=settings.name,
                found=repr(text)[:60],
                allowed="NAME, NAME==VERSION or NAME>=VERSION,<VERSION",
            ) from fault
        if requirement.url or requirement.marker:
            raise InventoryError(
                f"{key} must name a package of the index, without URL or marker",
                where=settings.name,
                found=repr(text)[:60],
                remedy="Name the index under sources, and the version here.",
            )
        normal.append(str(requirement))
    return PythonWanted(tuple(normal), settings.expected.architecture, settings.python)


def engine_requirements(settings: Settings, pins: Pins) -> dict[str, str]:
    """Distribution → exact requirement, for all that the engine's venv takes from an index.

    In the order of installation: torch, torchvision, vllm (a released one), mistral-common,
    flashinfer-python, flashinfer-cubin, flashinfer-jit-cache; without those not asked for.

    Raises:
        ResolveError: one of them is not resolved.
    """
    exact = [item for packages in engine_sets(settings) for item in _exact(pins, packages)]
    return {name_of(item): item for item in exact}


def tool_requirements(settings: Settings, pins: Pins) -> dict[str, str]:
    """Tool, as `Settings.tools` names it → exact requirement.

    Raises:
        ResolveError: one of them is not resolved.
    """
    return {tool: _exact(pins, packages)[0] for tool, packages in tool_sets(settings).items()}


def _exact(pins: Pins, packages: PythonWanted) -> tuple[str, ...]:
    if not has_python(pins, packages):
        raise ResolveError(
            f"{packages.key} is not resolved for {packages.architecture}, Python {packages.python}",
            remedy="Resolve first, then use the record.",
        )
    return pins.python[packages.key].exact
