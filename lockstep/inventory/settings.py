"""The keys of inventory data for one Spark: type, default and meaning of each.

`group_data/all.py` gives a value to most keys; `group_data/<inventory>.py` and a host's own data
override them. Nothing here knows where a host lives: the same keys serve a Spark on the internet,
one behind a proxy and one with no internet at all.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal
from urllib.parse import quote

from lockstep.inventory import values
from lockstep.inventory.backup import Backup
from lockstep.inventory.cluster import ClusterData, Fabric
from lockstep.inventory.monitoring import Monitoring
from lockstep.inventory.secret import Secret, SecretSource
from lockstep.onhost.core import address_text as address_of
from lockstep.onhost.core.config import ModelSettings, Seconds
from lockstep.onhost.core.schema import Rule, one_of
from lockstep.recipes.block import Specifier

FORK = "https://github.com/juliendenize/vllm.git"
FORK_TORCH = "torch==2.10.0+cu130"
# The fork's own requirement is >=4.56,<5, and 4.57.6, the newest of these, imports. But with
# Mistral Small 4's tokenizer (v15) the fork passes `reasoning_effort` with every chat, which
# transformers takes since 5.4.0 and refuses before. From 5.17.0 on, the names that the fork's
# Pixtral class imports are gone. Run on a CPU with the fork at 8e6f4314, 2026-11-22.
FORK_TRANSFORMERS = "transformers==5.4.0"
#: Value of `VenvEngine.exclude_newer`: the day of the source tree's commit; of several the last.
FORK_S_DAY = "fork"
#: Suffix of a model's name and unit for those of its fallback.
FALLBACK = "-fallback"
Day = Annotated[
    str,
    Rule(
        "is not a day",
        lambda day: day == FORK_S_DAY or datetime.date.fromisoformat(day),
        '"YYYY-MM-DD", "fork" for the day of the fork\'s commit, or None',
    ),
]


@dataclass(frozen=True)
class ExpectedMachine:
    """The demands of preflight on a host.

    Attributes:
        architecture: Output of `uname -m`.
        dgx_os: Version specifier for DGX OS after its last update, "" for any.
        cuda_toolkit: Least release of /usr/local/cuda ("13.0"); a later one of its major will do.
        compute_capability: The GPU's, as the driver reports it ("12.1" for a GB10).
        memory_gib: Least MemTotal, GiB; a Spark of 128 GB shows 119.6 to 121.7. It also says which
            kind of machine the plan counts with: 58 for a Spark of 64 GB (docs/fit.md).
        free_disk_gib: Free space on the model disk after all downloads, GiB.
        engine_cuda: Required start of `torch.version.cuda` in the engine's environment; None
            demands a build without CUDA.
        clock_skew_s: Largest difference between this clock and the host's, seconds.
    """

    architecture: values.Architecture = "aarch64"
    dgx_os: Specifier = ">=7"
    cuda_toolkit: values.Version = "13.0"
    compute_capability: values.Version = "12.1"
    memory_gib: values.Size = 115.0
    free_disk_gib: values.Size = 20.0
    engine_cuda: str | None = "13"
    clock_skew_s: values.Size = 120.0


@dataclass(frozen=True)
class Sources:
    """Servers of the downloads. None means the client's own configuration.

    Attributes:
        python_index: Simple index for Python packages.
        torch_index: PyTorch's index of the CUDA build.
        flashinfer_index: FlashInfer's index of flashinfer-jit-cache.
        vllm_wheels: Server of vLLM's wheels, one for each commit.
        hub: Hugging Face endpoint.
        git: Prefix of a git URL → prefix to use instead, with a login where one is needed.
        registries: Registry host → registry to use instead, HOST, HOST:PORT or HOST:PORT/PATH
            ("docker.io": "10.0.0.5:5000"); without a login.
        plain_registries: Registry hosts that speak HTTP without TLS.
        apt: Extra lines for /etc/apt/sources.list.d/lockstep.list.
    """

    python_index: values.Url | None = None
    torch_index: values.Url | None = "https://download.pytorch.org/whl/cu130"
    flashinfer_index: values.Url | None = "https://flashinfer.ai/whl/cu130"
    vllm_wheels: values.Url = "https://wheels.vllm.ai"
    hub: values.Url = "https://huggingface.co"
    git: Mapping[values.Git, values.Git] = field(default_factory=dict)
    registries: Mapping[str, values.Registry] = field(default_factory=dict)
    plain_registries: tuple[values.PlainRegistry, ...] = ()
    apt: tuple[values.AptLine, ...] = ()

    def vllm_wheel(self, path: str) -> str:
        """Return the address of a path of `vllm_wheels`; "+" is quoted, as its store demands."""
        return f"{self.vllm_wheels.rstrip('/')}/{quote(path)}"


@dataclass(frozen=True)
class Proxy:
    """Proxy for apt, uv, git, Docker and the downloads of weights; None: direct."""

    http: values.Url | None = None
    https: values.Url | None = None
    no: str = "localhost,127.0.0.1,::1"

    def environment(self) -> dict[str, str]:
        """Return the proxy variables, in both spellings that programs read; {} without a proxy."""
        pairs = {"http_proxy": self.http, "https_proxy": self.https}
        variables = {name: value for name, value in pairs.items() if value}
        if variables:
            variables["no_proxy"] = self.no
        return variables | {name.upper(): value for name, value in variables.items()}


@dataclass(frozen=True)
class HostPaths:
    """Folders on the host."""

    scripts: values.Folder = "/data/scripts"
    models: values.Folder = "/data/models"
    engines: values.Folder = "/opt/lockstep/engines"

    @property
    def hub_cache(self) -> str:
        """The Hugging Face home of the service user."""
        return f"{self.models}/huggingface"


@dataclass(frozen=True)
class VenvEngine:
    """vLLM in a venv: a git source (the fork) or a release from the package index.

    Attributes:
        git: Repository of the fork; "" is the default fork, unless `release` is given. None
            installs the release.
        branch: Branch of the fork.
        commit: Commit of the fork; None resolves the branch once.
        release: Requirement for a released vLLM ("vllm==0.20.2") instead of the fork. With neither
            `git` nor `release`, the newest release.
        torch: Requirement for PyTorch, from `sources.torch_index`. "" is the build of the fork, or
            the requirement of the release.
        torchvision: Requirement for torchvision, or None.
        transformers: Requirement for transformers, or one commit of a repository of it
            ("transformers @ git+https://HOST/PATH@COMMIT"). "" is the version for the fork, or
            the requirement of the release. None is the requirement of the source in any case.
        mistral_common: Requirement for mistral_common, or None.
        exclude_newer: Last day (ISO date) whose uploads to the package index count. "fork" is the
            day of the fork's commit, None no limit. A release has no limit unless a day is named.
            A package that these settings name in one version (==) may be newer.
        flashinfer: Whether the FlashInfer triple is installed.
        flashinfer_version: Specifier for the triple ("" is the newest that agrees).
        precompiled: Whether the fork takes its compiled parts from a wheel of vLLM's
            (VLLM_USE_PRECOMPILED). False: it compiles them, or has none.
        precompiled_commit: Commit of that wheel; None is the commit at which the fork left
            `upstream`.
        precompiled_variant: Build of that wheel, a folder of `sources.vllm_wheels` ("cu130"); ""
            is the server's first one.
        upstream: Repository of vLLM itself; its wheels are of the branch `main`.
        build_environment: More variables for the fork's build.
        disk_gib: Disk space of the environment, GiB: torch with CUDA, vLLM and FlashInfer's
            kernels. An estimate until it is measured on a Spark (2026-11-21).
    """

    git: values.Repository | None = ""
    branch: values.Branch = "fix_mistral_parsing"
    commit: str | None = None
    release: str | None = None
    torch: str = ""
    torchvision: str | None = "torchvision"
    transformers: values.Transformers | None = ""
    mistral_common: str | None = "mistral_common"
    exclude_newer: Day | None = FORK_S_DAY
    flashinfer: bool = True
    flashinfer_version: str = ""
    precompiled: bool = True
    precompiled_commit: values.Commit | None = None
    precompiled_variant: values.Build = "cu130"
    upstream: values.Repository = "https://github.com/vllm-project/vllm.git"
    build_environment: Mapping[values.BuildVariable, values.Printable] = field(default_factory=dict)
    disk_gib: values.Size = 15.0

    def __post_init__(self) -> None:
        """Fill unset values from the fork, or with a release from its requirements."""
        unsaid: dict[str, str | None] = {}
        if self.git == "":
            unsaid["git"] = None if self.release else FORK
        is_release = unsaid.get("git", self.git) is None
        if is_release and not self.release:
            unsaid["release"] = "vllm"
        if not self.torch:
            # Asking for torch by name makes it come from PyTorch's own index.
            unsaid["torch"] = "torch" if is_release else FORK_TORCH
        if self.transformers == "":
            unsaid["transformers"] = None if is_release else FORK_TRANSFORMERS
        if is_release and self.exclude_newer == FORK_S_DAY:
            unsaid["exclude_newer"] = None
        for name, value in unsaid.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class Gpu:
    """The GPU of a Spark.

    Attributes:
        max_clock_mhz: Its clock is kept at or below this, MHz (docs/gpu.md); None: as the driver
            chooses.
    """

    max_clock_mhz: values.Clock | None = None


@dataclass(frozen=True)
class MemoryMinimum:
    """The least memory that is left to the host, GiB.

    Attributes:
        free_gib: MemFree while the model loads; below it the page cache is dropped and memory
            compacted. 0 turns that off.
        loading_gib: MemAvailable while the model loads; below it the engine is ended. 0 turns that
            off, None is 8 GiB, or half of what the recipe's fit leaves where that is less, and 4
            GiB at least.
        serving_gib: The same while the model is hot; None is 4 GiB.
    """

    free_gib: values.Size = 8.0
    loading_gib: values.Size | None = None
    serving_gib: values.Size | None = None

    @property
    def ends(self) -> tuple[float | None, float | None]:
        """The two minimums below which an engine is ended: while it loads, and while it is hot."""
        return self.loading_gib, self.serving_gib


@dataclass(frozen=True)
class ModelData(ModelSettings):
    """One name that switch.sh accepts, as inventory data binds it; its settings come beside.

    Attributes:
        recipe: Name of a recipe in the catalogue.
        unit: Name of the systemd unit, without ".service".
        fallback: Recipe to try where `recipe` fails, or None.
        bind: Address of the API.
        port: Port of the API; None takes the recipe's.
        engine_port: Loopback port of the engine behind a listener of the gateway, where there is
            one; None is 1000 above the port of the API.
        image: Image reference instead of the recipe's.
        launcher: Path of the script that the unit runs (container engines).
        scripts: Paths of further scripts that run `switch.sh MODEL`.
        overrides: Recipe keys that this inventory changes ("max_model_len": 65536).
        fallback_overrides: The same for the fallback; None: those above where it runs on the same
            engine, else none. Another engine needs another share of the memory.
        memory_minimum: The least memory that it leaves to the host.
        cluster: Name of the cluster that serves it, the same on every member; rank 0 answers. None:
            this host alone.
    """

    recipe: str
    unit: values.Unit
    fallback: str | None = None
    bind: values.Bind = "127.0.0.1"
    port: values.Port | None = None
    engine_port: values.Port | None = None
    image: values.Image | None = None
    launcher: str | None = None
    scripts: tuple[str, ...] = ()
    overrides: Mapping[str, Any] = field(default_factory=dict)
    fallback_overrides: Mapping[str, Any] | None = None
    memory_minimum: MemoryMinimum = field(default_factory=MemoryMinimum)
    cluster: str | None = None

    @property
    def units(self) -> tuple[str, ...]:
        """The model's unit and, where there is one, its fallback's."""
        return (self.unit,) if self.fallback is None else (self.unit, self.unit + FALLBACK)


@dataclass(frozen=True)
class WebUi:
    """Open WebUI: a container under a unit, enabled at boot."""

    enabled: bool = True
    image: values.Image = "ghcr.io/open-webui/open-webui:v0.12.4"
    unit: values.Unit = "open-webui"
    bind: values.Bind = "127.0.0.1"
    port: values.Port = 8080
    volume: values.Volume = "open-webui"
    admin_email: values.Email = "admin@localhost"


@dataclass(frozen=True)
class Certificate:
    """A certificate of the owner's: its whole chain and its key, both PEM.

    Attributes:
        certificate: The chain, the gateway's own certificate first: full path on the host, or place
            on the operator's machine.
        key: The certificate's key, in the same way.
    """

    certificate: values.File | Secret
    key: values.File | Secret

    @property
    def given_files(self) -> tuple[SecretSource, SecretSource] | None:
        """Chain and key, where the deploy brings them; None where they are on the host."""
        if isinstance(self.certificate, SecretSource) and isinstance(self.key, SecretSource):
            return self.certificate, self.key
        return None


@dataclass(frozen=True)
class GatewayLimits:
    """The limits of the gateway.

    Attributes:
        body_mib: Body of one request, MiB.
        streams: Requests under way in all, watchers of the page among them.
        streams_per_key: The same of one key.
    """

    body_mib: values.Count = 64
    streams: values.Count = 2048
    streams_per_key: values.Count = 32


@dataclass(frozen=True)
class Gateway:
    """The one address of all models of a Spark (docs/gateway.md).

    Attributes:
        bind: Address for other machines; at 127.0.0.1 it is open in any case.
        port: Port on loopback, at `bind` where `plain` is set, and for `peers`.
        plain: Whether it is open at `bind` without TLS.
        tls: Certificate at `bind`: "own" for an authority of the inventory, "tailscale" for
            Tailscale's, or one of yours. None: no TLS.
        tls_port: Port at `bind` with TLS.
        names: Names and addresses of the host in its certificate, beside the inventory's name of
            it, its `ssh_hostname` and `bind`.
        local_keys: Whether a key is asked for on loopback too.
        origins: Sites whose pages may ask it from a browser, with a key ("https://chat.example").
        peers: Hosts of the inventory whose models it lists and passes requests on to.
        swap_on_request: Whether a request for a cold model asks for a switch to it.
        least_hot_s: Least time that a model stays hot before a request may replace it, seconds.
        queue: Requests that may wait for a switch.
        ttl_s: Time without a request after which the hot model is stopped, seconds; None: never.
        keepalive_s: Time between two signs of life on a stream that waits, seconds.
        limits: What it takes at most.
    """

    bind: values.Bind = "127.0.0.1"
    port: values.Port = 8090
    plain: bool = False
    tls: Annotated[str, one_of(("own", "tailscale"))] | Certificate | None = None
    tls_port: values.Port = 8443
    names: tuple[values.CertificateName, ...] = ()
    local_keys: bool = False
    origins: tuple[values.Origin, ...] = ()
    peers: tuple[values.HostName, ...] = ()
    swap_on_request: bool = False
    least_hot_s: Seconds = 120
    queue: values.Count = 32
    ttl_s: values.RestTime | None = None
    keepalive_s: values.KeepAlive = 15
    limits: GatewayLimits = field(default_factory=GatewayLimits)

    @property
    def open(self) -> bool:
        """True if other machines are to reach the gateway."""
        return not values.is_loopback(self.bind)

    @property
    def open_port(self) -> int | None:
        """The port that other machines reach the gateway at; None where they do not."""
        if not self.open:
            return None
        return self.port if self.plain else self.tls_port


@dataclass(frozen=True)
class Firewall:
    """Ports that other machines can reach. Loopback is not filtered.

    Attributes:
        enabled: False removes the rules, and every listening port is open.
        ssh_ports: Ports of sshd.
        open: Further services, "tcp/PORT" or "udp/PORT". Ports of engines and of Open WebUI are
            open where their `bind` says so, the gateway's too.
        peers: Addresses or networks that reach every port: the link between Sparks.
    """

    enabled: bool = True
    ssh_ports: Annotated[
        tuple[values.AnyPort, ...], Rule("is empty, which would lock you out", bool, "(22,)")
    ] = (22,)
    open: tuple[values.Service, ...] = ()
    peers: tuple[values.Peer, ...] = ()


@dataclass(frozen=True)
class Settings:
    """All data of one host, checked.

    Attributes:
        python: Version of the interpreter of the engine's environment ("3.12").
        service_user: System account of the engines. (logind would remove the semaphores of a
            regular user's engine at logout.)
        operators: Accounts that may switch models, by exactly the commands of `switch.sh`.
        docker_users: Accounts that may use Docker, which makes them as good as root.
        recipe_folders: More folders of recipes, relative to the owner's folder.
        extra_files: Full path on the host → file in the inventory's folder, to be written there: a
            unit or a timer of your own, a configuration. No secrets (docs/deploying.md).
        sysctls: Kernel settings.
        accept_licences: SPDX ids accepted for this host beyond the catalogue's policy.
        waive: Codes of findings that do not stop a deploy to this host; they stay visible.
        boot: Model that becomes hot after a boot: "none"; "last", the hot one at the end of the
            last switch; or a name that `switch.sh` takes.
        differs: Intended differences of this host, as `lockstep diff` names them, with wildcards
            ("apt package htop", "setting /etc/cron.d/*"). They are no drift. The deploy's own files
            and settings cannot be excused.
        hub_token: Token of the hub for gated weights, for this machine and for the hosts
            (docs/security.md). None: the token put on each host, and on this machine HF_TOKEN or
            the file of `hf auth login`.
        logins: Server of `sources` or `proxy`, "https://HOST" or with a port → its login, as
            USER:PASSWORD (docs/security.md).
        adopt: Foreign things on this host that the deploy takes over: a full path, "unit NAME",
            "container NAME", "volume NAME" or "account NAME".
        lock: The inventory's lock file, from the repository or with a full path; None:
            INVENTORY.lock.yaml.
        login: Login command of an operator, shown after a deploy; None: `ssh USER@HOST`.
        fabric_address: Address of the host on the fast link between Sparks, for copies of weights,
            images and wheels, and for a cluster's members. None: the address of the deploy; the
            host is then no member of a cluster.
        fabric: Interfaces of that link, for a cluster.
        clusters: Name → hosts that serve one model together.
        copying: Whether it copies from and to its peers. False: it downloads everything.
        copy_port: Port of the copying at `fabric_address`, open while a deploy copies.
        rollout: Effect of a failure on one host for the others: "each", they keep their state of
            that time; "all", they return to their generation too (docs/rolling.md).
        Other keys: see the classes above.
    """

    name: values.HostName
    models: Annotated[
        Mapping[values.ModelName, ModelData],
        Rule("is empty", bool, remedy="Bind at least one recipe."),
    ]
    expected: ExpectedMachine = field(default_factory=ExpectedMachine)
    sources: Sources = field(default_factory=Sources)
    proxy: Proxy = field(default_factory=Proxy)
    paths: HostPaths = field(default_factory=HostPaths)
    engine: VenvEngine = field(default_factory=VenvEngine)
    webui: WebUi = field(default_factory=WebUi)
    gateway: Gateway = field(default_factory=Gateway)
    firewall: Firewall = field(default_factory=Firewall)
    gpu: Gpu = field(default_factory=Gpu)
    monitoring: Monitoring = field(default_factory=Monitoring)
    backup: Backup = field(default_factory=Backup)
    python: values.Python = "3.12"
    service_user: values.Account = "lockstep"
    operators: tuple[values.Person, ...] = ()
    docker_users: tuple[values.Person, ...] = ()
    recipe_folders: tuple[str, ...] = ()
    packages: tuple[values.Package, ...] = ()
    extra_files: Mapping[values.ExtraFile, str] = field(default_factory=dict)
    sysctls: Mapping[values.Sysctl, values.SysctlValue] = field(default_factory=dict)
    tools: Mapping[str, str] = field(default_factory=dict)
    lock: values.LockFile | None = None
    login: values.Printable | None = None
    fabric_address: values.FabricAddress | None = None
    fabric: Fabric = field(default_factory=Fabric)
    clusters: Mapping[values.ClusterName, ClusterData] = field(default_factory=dict)
    copying: bool = True
    copy_port: values.Port = 7077
    rollout: Literal["each", "all"] = "each"
    accept_licences: tuple[str, ...] = ()
    waive: tuple[values.Code, ...] = ()
    boot: str = "none"
    differs: tuple[str, ...] = ()
    hub_token: Secret | None = None
    logins: Mapping[values.Server, Secret] = field(default_factory=dict)
    adopt: tuple[values.AdoptedThing, ...] = ()

    @property
    def prometheus_url(self) -> str | None:
        """The address of Prometheus on this host, without a path; None where none runs here."""
        if not self.monitoring.keeps:
            return None
        fabric = str(self.fabric_address)
        address = "127.0.0.1" if self.monitoring.bind == "loopback" else fabric
        return address_of.url(address, self.monitoring.prometheus_port)

    @property
    def webui_adopted(self) -> bool:
        """True if Open WebUI keeps the accounts of an older volume."""
        return f"volume {self.webui.volume}" in self.adopt
