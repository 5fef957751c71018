"""Paths on a Spark."""

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
    """All paths on a host; `root` is another folder only in unit tests."""

    root: Path = Path("/")

    models = _Place("etc/lockstep/models.json")  #: Configuration written by the deploy.
    #: Written by the deploy: the gateway's configuration and its page.
    gateway = _Place("etc/lockstep/gateway.json")
    gateway_page = _Place("etc/lockstep/gateway.html")
    #: The authority that signs its certificate, where there is one.
    authority = _Place("etc/lockstep/authority.crt")
    gateway_keys = _Place("etc/lockstep/gateway/keys.json")  #: Keys of the gateway's users.
    groups_of_units = _Place("sys/fs/cgroup/system.slice")  #: Control groups of units.
    #: Accepted speeds, with which later deploys are compared.
    accepted_speeds = _Place("var/lib/lockstep-deploy/accepted.json")
    #: Answers of the engines inside images about their recipes.
    image_answers = _Place("var/cache/lockstep/images")
    #: Our target of netconsole, in the folder that the kernel's module makes.
    netconsole = _Place("sys/kernel/config/netconsole/lockstep")
    proc = _Place("proc")  #: The kernel's process file system.
    #: Disks by number, and settings of disks and of file systems without one.
    block_devices = _Place("sys/dev/block")
    disk_settings = _Place("sys/class/bdi")
    run = _Place("run/lockstep")  #: Locks; gone after a reboot.
    switch_lock = _Place("run/lockstep/switch.lock")  #: Held by a change of the hot model.
    deploy_lock = _Place("run/lockstep/deploy.lock")  #: Held by a deploy.
    #: Changes of the hot model under way, and what the last one left.
    hot_change = _Place("run/lockstep/hot-change.json")
    findings = _Place("run/lockstep/findings")  #: What the watches found and did since boot.
    disk_rates = _Place("run/lockstep/disks.json")  #: MB/s of the disks of weights, by number.
    #: The disks' own read-ahead while an engine loads with a larger one.
    read_ahead = _Place("run/lockstep/read-ahead.json")
    secrets = _Place("etc/lockstep/secrets")  #: Keys; only root can read them.
    #: The last run of each cluster here, and this host's part in a switch of one.
    clusters = _Place("run/lockstep/clusters.json")
    #: The same on disk, because a boot empties the other place.
    clusters_on_disk = _Place("var/lib/lockstep-cluster/clusters.json")
    #: The deploy's own state; only root can read it.
    state = _Place("var/lib/lockstep-deploy")
    #: Records of this host's finished deploys.
    generations = _Place("var/lib/lockstep-deploy/generations")
    #: Notes of the images that a deploy pulled here.
    pulled_images = _Place("var/lib/lockstep-deploy/pulled")
    #: The models that were starting or hot in each boot, and the result of the last switch.
    boots = _Place("var/lib/lockstep-deploy/boots.json")
    #: What was here before each change of the newest generation, and of a deploy that has not ended
    #: well yet.
    journal = _Place("var/lib/lockstep-deploy/journal.json")
    begun_journal = _Place("var/lib/lockstep-deploy/begun-journal.json")
    #: The end of the last deploy, if this host had to end it on its own.
    cut_off = _Place("var/lib/lockstep-deploy/cut-off.json")
    #: The state of this host before the first deploy.
    baseline = _Place("var/lib/lockstep-deploy/found.json")
    #: Packages that a deploy installed here.
    packages = _Place("var/lib/lockstep-deploy/packages.json")
    #: The image that last opened Open WebUI's data, and copies of the data from before updates.
    webui = _Place("var/lib/lockstep-deploy/webui.json")
    webui_kept = _Place("var/lib/lockstep-deploy/webui")
    #: The deploy's configuration of backups, the host's own repository, restic's cache, and the
    #: result of the last night's backup.
    backup = _Place("etc/lockstep/backup.json")
    backup_kept = _Place("var/lib/lockstep-deploy/backup")
    backup_cache = _Place("var/cache/lockstep/restic")
    backup_record = _Place("var/lib/lockstep-deploy/backup.json")
    host_key = _Place("etc/ssh/ssh_host_ed25519_key.pub")  #: The sshd key that other hosts check.
    switches = _Place("var/log/lockstep/switches.json")  #: How the last switches ended.
    loads = _Place("var/log/lockstep/loads.json")  #: The last load of each model.
    diff = _Place("var/log/lockstep/diff.json")  #: What the last `lockstep diff` found here.
    log = _Place("var/log/lockstep")  #: Logs of long jobs.
    #: Manifests and compressed layers of images by hash.
    layers = _Place("var/cache/lockstep/layers")
    docker_socket = _Place("var/run/docker.sock")  #: Docker Engine API.

    @property
    def weights_list(self) -> Path:
        """The list of weights that the units here serve; a deploy may be fetching others."""
        served_weights = self.root / "etc/lockstep/served-weights.json"
        return (
            served_weights if served_weights.exists() else self.root / "etc/lockstep/weights.json"
        )
