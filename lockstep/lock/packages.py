"""The Python packages and git sources of a host: the wanted ones and the pinned ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name, parse_wheel_filename

from lockstep.core.digest import is_commit
from lockstep.core.errors import InventoryError, ResolveError
from lockstep.inventory.settings import Settings, Sources
from lockstep.lock.moving import GitWanted, PrecompiledWanted, PythonWanted
from lockstep.lock.pins import Pins, PrecompiledPin, PythonPin, WheelPin, has

#: Names of the environments of a host, as the lock has them.
ENGINE, BUILD, UV, TOOLS = "engine", "engine-build", "uv", "tools"
# FlashInfer refuses to import unless these three have one version.
FLASHINFER = ("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache")


def tool_sets(settings: Settings) -> tuple[PythonWanted, ...]:
    """The environments of our own tools: uv, which makes all others, and what it installs."""
    asked: dict[str, list[tuple[str, str]]] = {UV: [], TOOLS: []}
    for tool, text in settings.tools.items():
        asked[UV if tool == "uv" else TOOLS].append((f"tools.{tool}", text))
    return tuple(_environment(settings, name, tools) for name, tools in asked.items() if tools)


def engine_sets(settings: Settings) -> tuple[PythonWanted, ...]:
    """The engine's environment, and the one that its source trees are built in."""
    engine = settings.engine
    asked = [("engine.torch", engine.torch), ("engine.torchvision", engine.torchvision)]
    if engine.git is None:
        asked.append(("engine.release", engine.release))
    tree = transformers_tree(settings)
    asked.append(("engine.transformers", None if tree else engine.transformers))
    asked.append(("engine.mistral_common", engine.mistral_common))
    if engine.flashinfer:
        asked += [("engine.flashinfer_version", text) for text in _triple(settings)]
    given = [(key, text) for key, text in asked if text]
    trees = engine_repositories(settings)
    agree = FLASHINFER if engine.flashinfer else ()
    until = engine.exclude_newer
    whole = _environment(settings, ENGINE, given)
    whole = replace(whole, agree=agree, trees=trees, exclude_newer=until)
    if not trees:
        return (whole,)
    build = _environment(settings, BUILD, [])
    return (whole, replace(build, trees=trees, build=True, exclude_newer=until))


def engine_repositories(settings: Settings) -> tuple[GitWanted, ...]:
    """The git sources of the engine's venv: the fork and transformers, where asked for."""
    engine = settings.engine
    if engine.commit is not None and not is_commit(engine.commit):
        raise InventoryError(
            "engine.commit is not a whole commit",
            where=settings.name,
            found=repr(engine.commit)[:60],
            allowed="40 hexadecimal digits, or None to resolve the branch",
        )
    fork = GitWanted(engine.git, engine.branch, engine.commit) if engine.git else None
    return tuple(tree for tree in (fork, transformers_tree(settings)) if tree)


def transformers_tree(settings: Settings) -> GitWanted | None:
    """The commit of transformers that is asked for; None where it comes from the package index."""
    text = settings.engine.transformers or ""
    if "@" not in text:
        return None
    name, _, address = text.partition("@")
    url, _, commit = address.strip().rpartition("@")
    if name.strip() == "transformers" and url.startswith("git+") and is_commit(commit):
        # Any server gives what its HEAD stands on, where it does not give a commit by its name.
        return GitWanted(url.removeprefix("git+"), "HEAD", commit)
    raise InventoryError(
        "engine.transformers is no commit of a repository",
        where=settings.name,
        found=repr(text)[:120],
        allowed="a requirement, or transformers @ git+https://HOST/PATH@COMMIT with 40 "
        "hexadecimal digits",
    )


def engine_precompiled(settings: Settings) -> tuple[PrecompiledWanted, ...]:
    """The wheel with the compiled parts of the fork, () where it takes none."""
    engine = settings.engine
    if engine.git is None or not engine.precompiled:
        return ()
    architecture, variant = settings.expected.architecture, engine.precompiled_variant
    tree = GitWanted(engine.git, engine.branch, engine.commit)
    wanted = PrecompiledWanted(
        tree, engine.upstream, architecture, variant, engine.precompiled_commit
    )
    return (wanted,)


def precompiled(settings: Settings, pins: Pins) -> PrecompiledPin | None:
    """What of that is locked, None where the fork takes none. ResolveError for another one."""
    for wanted in engine_precompiled(settings):
        if not has(pins, wanted):
            raise ResolveError(
                "the fork's compiled wheel is not resolved for what is asked for",
                where=wanted.key,
                remedy="Run `lockstep lock`, or deploy.",
            )
        return pins.precompiled[wanted.key]
    return None


def fork_version(settings: Settings, pins: Pins) -> str | None:
    """The version that a fork is built as: that of the vLLM whose compiled parts it takes.

    A fork has none of vLLM's tags, and setuptools-scm would call it 0.1.dev. None where no compiled
    wheel is locked, and so nothing says what the fork descends from.
    """
    for wanted in engine_precompiled(settings):
        if has(pins, wanted):
            _, version, *_ = parse_wheel_filename(pins.precompiled[wanted.key].file)
            return f"{version.public}+g{pins.git[wanted.key].commit[:9]}"
    return None


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


def _environment(settings: Settings, name: str, asked: Sequence[tuple[str, str]]) -> PythonWanted:
    """One environment; ``asked`` are pairs of settings key and requirement."""
    normal = tuple(_normal(settings, key, text) for key, text in asked)
    return PythonWanted(name, normal, settings.expected.architecture, settings.python)


def _normal(settings: Settings, key: str, text: str) -> str:
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
    return str(requirement)


def locked(settings: Settings, pins: Pins, name: str) -> tuple[WheelPin, ...]:
    """Every package of one environment of a host, () for one that the host does not have.

    ResolveError where it is not resolved for what the host asks for.
    """
    for wanted in (*tool_sets(settings), *engine_sets(settings)):
        if wanted.name == name:
            return _pinned(pins, wanted).packages
    return ()


def tool_requirements(settings: Settings, pins: Pins) -> dict[str, str]:
    """Tool, as `Settings.tools` names it → exact requirement. ResolveError where one has none."""
    exact: dict[str, str] = {}
    for tools in tool_sets(settings):
        versions = _pinned(pins, tools).versions
        exact |= {name: f"{name}=={versions[name]}" for name in map(name_of, tools.asked)}
    return {tool: exact[name_of(text)] for tool, text in settings.tools.items()}


def _pinned(pins: Pins, wanted: PythonWanted) -> PythonPin:
    if not has(pins, wanted):
        raise ResolveError(
            f"the environment {wanted.name} is not resolved for what is asked for",
            where=f"{wanted.architecture}, Python {wanted.python}",
            remedy="Run `lockstep lock`, or deploy.",
        )
    return pins.python[wanted.key]
