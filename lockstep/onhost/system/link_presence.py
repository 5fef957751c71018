"""The check of a rank's fast link; a port without its cable has no interface.

DGX OS removes a ConnectX port from PCI while its cable is out or the Spark at the other end is off
(package dgx-spark-mlnx-hotplug): there is no network interface then, and no RDMA device.
"""

from __future__ import annotations

from lockstep.onhost.core import errors, layout, topology


def refuse_missing_links(name: str, cluster: topology.Cluster, paths: layout.Paths) -> None:
    """Check that all links of this host are there; else raise Problem for the model `name`."""
    lacking = []
    for interface, device in cluster.links.items():
        # /sys is used, because the agent sees no devices.
        if not (paths.root / "sys/class/net" / interface).exists():
            lacking.append(f"no network interface {interface}")
        elif device and not (paths.root / "sys/class/infiniband" / device).exists():
            lacking.append(f"no RDMA device {device} at {interface}")
    if lacking:
        raise errors.Problem(
            f"{name} runs over the fast link of cluster {cluster.name}, and "
            f"{cluster.own_member.name} has {' and '.join(lacking)}; nothing was stopped. "
            "Remedy: plug the cable in, and see that the Spark at its other end is on. DGX OS "
            "hides "
            "a ConnectX port without a link; sudo rm /etc/nvidia/cx7-hotplug-enabled and a "
            "reboot keep it"
        )
