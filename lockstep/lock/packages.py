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
from lockstep.lock.moving import GitItem, PrecompiledItem, PythonItem
from lockstep.lock.pins import Pins, PrecompiledPin, PythonPin, WheelPin, has

#: Names of a host's environments in the lock.
ENGINE, BUILD, UV, TOOLS = "engine", "engine-build", "uv", "tools"
# FlashInfer refuses to import unless these three have one version.
FLASHINFER = ("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache")


def tool_sets(settings: Settings) -> tuple[PythonItem, ...]:
    """Return the environments of our tools: uv, which makes the others, and what it installs."""
    requirements: dict[str, list[tuple[str, str]]] = {UV: [], TOOLS: []}
    for tool, text in settings.tools.items():
        requirements[UV if tool == "uv" else TOOLS].append((f"tools.{tool}", text))
    return tuple(
        _environment(settings, name, tools) for name, tools in requirements.items() if tools
    )


def engine_sets(settings: Settings) -> tuple[PythonItem, ...]:
    """Return the engine's environment, and the one in which its source trees are built."""
    engine = settings.engine
    requirements = [("engine.torch", engine.torch), ("engine.torchvision", engine.torchvision)]
    if engine.git is None:
        requirements.append(("engine.release", engine.release))
    tree = transformers_tree(settings)
    requirements.append(("engine.transformers", None if tree else engine.transformers))
    requirements.append(("engine.mistral_common", engine.mistral_common))
    if engine.flashinfer:
        requirements += [("engine.flashinfer_version", text) for text in _triple(settings)]
    given_requirements = [(key, text) for key, text in requirements if text]
    trees = engine_repositories(settings)
    agree = FLASHINFER if engine.flashinfer else ()
    until = engine.exclude_newer
    whole = _environment(settings, ENGINE, given_requirements)
    whole = replace(whole, agree=agree, trees=trees, exclude_newer=until)
    if not trees:
        return (whole,)
    build = _environment(settings, BUILD, [])
    return (whole, replace(build, trees=trees, build=True, exclude_newer=until))


def engine_repositories(settings: Settings) -> tuple[GitItem, ...]:
    """Return the git sources of the engine's venv: the fork and transformers, if asked for."""
    engine = settings.engine
    if engine.commit is not None and not is_commit(engine.commit):
        raise InventoryError(
            "engine.commit is not a whole commit",
            where=settings.name,
            found=repr(engine.commit)[:60],
            allowed="40 hexadecimal digits, or None to resolve the branch",
        )
    fork = GitItem(engine.git, engine.branch, engine.commit) if engine.git else None
    return tuple(tree for tree in (fork, transformers_tree(settings)) if tree)


def transformers_tree(settings: Settings) -> GitItem | None:
    """Return the requested commit of transformers; None where it comes from the package index."""
    text = settings.engine.transformers or ""
    if "@" not in text:
        return None
    name, _, address = text.partition("@")
    url, _, commit = address.strip().rpartition("@")
    if name.strip() == "transformers" and url.startswith("git+") and is_commit(commit):
        # Some servers give no commit by its name, but every server gives that of its HEAD.
        return GitItem(url.removeprefix("git+"), "HEAD", commit)
    raise InventoryError(
        "engine.transformers is no commit of a repository",
        where=settings.name,
        found=repr(text)[:120],
        allowed="a requirement, or transformers @ git+https://HOST/PATH@COMMIT with 40 "
        "hexadecimal digits",
    )


def engine_precompiled(settings: Settings) -> tuple[PrecompiledItem, ...]:
    """Return the wheel with the compiled parts of the fork; () where the fork takes none."""
    engine = settings.engine
    if engine.git is None or not engine.precompiled:
        return ()
    architecture, variant = settings.expected.architecture, engine.precompiled_variant
    tree = GitItem(engine.git, engine.branch, engine.commit)
    item = PrecompiledItem(tree, engine.upstream, architecture, variant, engine.precompiled_commit)
    return (item,)


def precompiled_pin(settings: Settings, pins: Pins) -> PrecompiledPin | None:
    """Return the locked wheel; None where the fork takes none. ResolveError for another one."""
    for item in engine_precompiled(settings):
        if not has(pins, item):
            raise ResolveError(
                "the fork's compiled wheel is not resolved for what is asked for",
                where=item.key,
                remedy="Run `lockstep lock`, or deploy.",
            )
        return pins.precompiled[item.key]
    return None


def fork_version(settings: Settings, pins: Pins) -> str | None:
    """Return the version that a fork is built as: that of the vLLM with its compiled parts.

    A fork has none of vLLM's tags, and setuptools-scm would call it 0.1.dev. None where no compiled
    wheel is locked, so that nothing says what the fork descends from.
    """
    for item in engine_precompiled(settings):
        if has(pins, item):
            _, version, *_ = parse_wheel_filename(pins.precompiled[item.key].file)
            return f"{version.public}+g{pins.git[item.key].commit[:9]}"
    return None


def mirror_url(url: str, sources: Sources) -> str:
    """Return the address for a git URL; the longest prefix in `sources.git` is replaced."""
    prefixes = [prefix for prefix in sources.git if url.startswith(prefix)]
    if not prefixes:
        return url
    longest = max(prefixes, key=len)
    return sources.git[longest] + url.removeprefix(longest)


def name_of(requirement: str) -> str:
    """Return the normalised distribution name of a requirement."""
    return canonicalize_name(Requirement(requirement).name)


def _triple(settings: Settings) -> tuple[str, ...]:
    version = settings.engine.flashinfer_version
    try:
        # Without this check "0.6" glued to a name would make another valid name.
        SpecifierSet(version)
    except InvalidSpecifier as fault:
        raise InventoryError(
            "engine.flashinfer_version is not a version specifier",
            where=settings.name,
            found=repr(version)[:60],
            allowed='"" for the newest, "==VERSION" or "<VERSION"',
        ) from fault
    return tuple(f"{name}{version}" for name in FLASHINFER)


def _environment(
    settings: Settings, name: str, requirements: Sequence[tuple[str, str]]
) -> PythonItem:
    """Return one environment; ``asked`` are pairs of settings key and requirement."""
    normal = tuple(_normal(settings, key, text) for key, text in requirements)
    return PythonItem(name, normal, settings.expected.architecture, settings.python)


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


def locked_wheels(settings: Settings, pins: Pins, name: str) -> tuple[WheelPin, ...]:
    """Return every package of one environment of a host, () for one that the host does not have.

    ResolveError where the lock does not match the host's requirements.
    """
    for item in (*tool_sets(settings), *engine_sets(settings)):
        if item.name == name:
            return _pin_of(pins, item).packages
    return ()


def tool_requirements(settings: Settings, pins: Pins) -> dict[str, str]:
    """Return tool, as `Settings.tools` names it → exact requirement. ResolveError without one."""
    exact: dict[str, str] = {}
    for tools in tool_sets(settings):
        versions = _pin_of(pins, tools).versions
        exact |= {name: f"{name}=={versions[name]}" for name in map(name_of, tools.requirements)}
    return {tool: exact[name_of(text)] for tool, text in settings.tools.items()}


def _pin_of(pins: Pins, item: PythonItem) -> PythonPin:
    if not has(pins, item):
        raise ResolveError(
            f"the environment {item.name} is not resolved for what is asked for",
            where=f"{item.architecture}, Python {item.python}",
            remedy="Run `lockstep lock`, or deploy.",
        )
    return pins.python[item.key]
