"""Where things are on a Spark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Paths:
    """Where things are on a host; `root` is another folder only in unit tests."""

    root: Path = Path("/")

    @property
    def targets(self) -> Path:
        """Configuration written by the deploy."""
        return self.root / "etc/lockstep/targets.json"

    @property
    def weights(self) -> Path:
        """Which weights the units here serve; a deploy may already be fetching others."""
        served = self.root / "etc/lockstep/served-weights.json"
        return served if served.exists() else self.root / "etc/lockstep/weights.json"

    @property
    def accepted(self) -> Path:
        """Accepted speeds, which later deploys are compared with."""
        return self.root / "var/lib/lockstep-deploy/accepted.json"

    @property
    def image_answers(self) -> Path:
        """What the engines inside images said about their recipes."""
        return self.root / "var/cache/lockstep/images"

    @property
    def proc(self) -> Path:
        """The kernel's process file system."""
        return self.root / "proc"

    @property
    def run(self) -> Path:
        """Locks; gone after a reboot."""
        return self.root / "run/lockstep"

    @property
    def unfinished(self) -> Path:
        """What a switch that was cut off owes."""
        return self.run / "unfinished-switch.json"

    @property
    def rollout(self) -> Path:
        """Which target a deploy is just restarting."""
        return self.run / "rollout.json"

    @property
    def wedge_record(self) -> Path:
        """What the wedge watch saw and did."""
        return self.run / "wedge.json"

    @property
    def secrets(self) -> Path:
        """Keys; only root can read them."""
        return self.root / "etc/lockstep/secrets"

    @property
    def groups(self) -> Path:
        """Which clusters run here, and how the last run of each ended."""
        return self.run / "clusters.json"

    @property
    def groups_kept(self) -> Path:
        """The same on disk: a boot forgets the other one."""
        return self.root / "var/lib/lockstep-cluster/groups.json"

    @property
    def joined(self) -> Path:
        """The switch of a cluster that this host takes part in now."""
        return self.run / "cluster-switch.json"

    @property
    def admitted(self) -> Path:
        """The target of a cluster that may be started now."""
        return self.run / "cluster-admitted.json"

    @property
    def state(self) -> Path:
        """What the deploy keeps about itself; only root can read it."""
        return self.root / "var/lib/lockstep-deploy"

    @property
    def generations(self) -> Path:
        """Records of what this host was brought to."""
        return self.state / "generations"

    @property
    def pulled(self) -> Path:
        """Notes of the images that a deploy pulled here."""
        return self.state / "pulled"

    @property
    def before(self) -> Path:
        """What there was before a rollout that has not ended well yet."""
        return self.state / "before.json"

    @property
    def log(self) -> Path:
        """Logs of long jobs."""
        return self.root / "var/log/lockstep"

    @property
    def layers(self) -> Path:
        """Manifests and compressed layers of images by hash."""
        return self.root / "var/cache/lockstep/layers"

    @property
    def docker_socket(self) -> Path:
        """Docker Engine API."""
        return self.root / "var/run/docker.sock"
