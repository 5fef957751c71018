"""Where things are on a Spark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class _Place:
    """A path below the root of a `Paths`."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __get__(self, paths: Paths, owner: object = None) -> Path:
        return paths.root / self._path


@dataclass(frozen=True)
class Paths:
    """Where things are on a host; `root` is another folder only in unit tests."""

    root: Path = Path("/")

    targets = _Place("etc/lockstep/targets.json")  #: Configuration written by the deploy.
    #: Written by the deploy: the gateway's configuration and its page.
    gateway = _Place("etc/lockstep/gateway.json")
    gateway_page = _Place("etc/lockstep/gateway.html")
    #: The authority that signs its certificate, where there is one.
    authority = _Place("etc/lockstep/authority.crt")
    gateway_keys = _Place("etc/lockstep/gateway/keys.json")  #: Who may use the gateway.
    groups_of_units = _Place("sys/fs/cgroup/system.slice")  #: Control groups of units.
    #: Accepted speeds, which later deploys are compared with.
    accepted = _Place("var/lib/lockstep-deploy/accepted.json")
    #: Accepted answers, which later ones are compared with.
    senses = _Place("var/lib/lockstep-deploy/senses.json")
    sensed = _Place("run/lockstep/sensed.json")  #: What the last look at each target's sense found.
    #: What the engines inside images said about their recipes.
    image_answers = _Place("var/cache/lockstep/images")
    #: Our target of netconsole, in the folder that the kernel's module makes.
    netconsole = _Place("sys/kernel/config/netconsole/lockstep")
    proc = _Place("proc")  #: The kernel's process file system.
    run = _Place("run/lockstep")  #: Locks; gone after a reboot.
    switch_lock = _Place("run/lockstep/switch.lock")  #: Held by who changes what is hot.
    deploy_lock = _Place("run/lockstep/deploy.lock")  #: Held by a deploy.
    #: What a switch that was cut off owes.
    unfinished = _Place("run/lockstep/unfinished-switch.json")
    cancellation = _Place("run/lockstep/cancel-switch.json")  #: The request to cancel a switch.
    rollout = _Place("run/lockstep/rollout.json")  #: Which target a deploy is just restarting.
    wedge_record = _Place("run/lockstep/wedge.json")  #: What the wedge watch saw and did.
    gpu_record = _Place("run/lockstep/gpu.json")  #: What the watch found wrong with the GPU.
    ended = _Place("run/lockstep/ended")  #: What the memory floor has ended since boot.
    #: What is hot by a switch, and what was before it.
    hot_before = _Place("run/lockstep/hot-before.json")
    secrets = _Place("etc/lockstep/secrets")  #: Keys; only root can read them.
    #: Which clusters run here, and how the last run of each ended.
    groups = _Place("run/lockstep/clusters.json")
    #: The same on disk: a boot forgets the other one.
    groups_kept = _Place("var/lib/lockstep-cluster/groups.json")
    #: The switch of a cluster that this host takes part in now.
    joined = _Place("run/lockstep/cluster-switch.json")
    #: The target of a cluster that may be started now.
    admitted = _Place("run/lockstep/cluster-admitted.json")
    #: What the deploy keeps about itself; only root can read it.
    state = _Place("var/lib/lockstep-deploy")
    #: Records of what this host was brought to.
    generations = _Place("var/lib/lockstep-deploy/generations")
    #: Notes of the images that a deploy pulled here.
    pulled = _Place("var/lib/lockstep-deploy/pulled")
    #: What was starting or hot in each boot, and what the last switch left.
    boots = _Place("var/lib/lockstep-deploy/boots.json")
    #: What there was before a rollout that has not ended well yet.
    before = _Place("var/lib/lockstep-deploy/before.json")
    #: What became of the last deploy, where this host had to end it by itself.
    cut_off = _Place("var/lib/lockstep-deploy/cut-off.json")
    #: What this host was before the first deploy.
    found = _Place("var/lib/lockstep-deploy/found.json")
    #: Which packages a deploy installed here.
    packages = _Place("var/lib/lockstep-deploy/packages.json")
    #: Which image opened Open WebUI's data last, and the copies of these from before updates.
    webui = _Place("var/lib/lockstep-deploy/webui.json")
    webui_kept = _Place("var/lib/lockstep-deploy/webui")
    #: What the deploy wrote of backups, the host's own repository, what restic keeps to be quicker,
    #: and how the last night's ended.
    backup = _Place("etc/lockstep/backup.json")
    backup_kept = _Place("var/lib/lockstep-deploy/backup")
    backup_cache = _Place("var/cache/lockstep/restic")
    backup_record = _Place("var/lib/lockstep-deploy/backup.json")
    host_key = _Place("etc/ssh/ssh_host_ed25519_key.pub")  #: By which others know this host's sshd.
    switches = _Place("var/log/lockstep/switches.json")  #: How the last switches ended.
    diff = _Place("var/log/lockstep/diff.json")  #: What the last `lockstep diff` said of this host.
    log = _Place("var/log/lockstep")  #: Logs of long jobs.
    #: Manifests and compressed layers of images by hash.
    layers = _Place("var/cache/lockstep/layers")
    docker_socket = _Place("var/run/docker.sock")  #: Docker Engine API.

    @property
    def weights(self) -> Path:
        """Which weights the units here serve; a deploy may already be fetching others."""
        served = self.root / "etc/lockstep/served-weights.json"
        return served if served.exists() else self.root / "etc/lockstep/weights.json"
