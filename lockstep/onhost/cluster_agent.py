#!/usr/bin/python3
"""Speak for this Spark to the other members of its clusters, and watch over their groups.

usage: cluster_agent.py [--lease SECONDS] [--beat SECONDS] [--look SECONDS] [--token-wait SECONDS]

Runs as root in lockstep-cluster.service on every member. Listens at the addresses and ports of
targets.json, for members only; every message is sealed with the cluster's key.

exit codes: 0 told to end, 1 cannot listen or has no key, 2 wrong use or unreadable configuration
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstep.onhost import (
        cluster_call,
        cluster_facts,
        cluster_groups,
        cluster_member,
        cluster_rollout,
        cluster_server,
        cluster_watch,
        cluster_work,
        clusters,
        common,
        engine,
    )
else:
    import cluster_call
    import cluster_facts
    import cluster_groups
    import cluster_member
    import cluster_rollout
    import cluster_server
    import cluster_watch
    import cluster_work
    import clusters
    import common
    import engine

_TOKEN_S = 30.0
_STEP_S = 1.0

Answer = dict[str, Any]


class Agent:
    """The member, its watches, and the ports at which both are asked."""

    def __init__(self, paths: common.Paths, options: argparse.Namespace) -> None:
        host = common.load_host(paths.targets)
        if not host.clusters:
            raise common.Problem("this host is in no cluster", common.EXIT_USAGE)
        cluster_groups.remember(paths, host.name)
        cluster_groups.forget_others(paths, host.clusters)
        self.member = cluster_member.Member(paths, options.lease)
        callers = {
            name: cluster_call.Caller.of(cluster, paths) for name, cluster in host.clusters.items()
        }
        self.watches = {
            name: cluster_watch.Watch(
                self.member,
                cluster,
                callers[name],
                options.beat,
                options.look,
                options.token_wait,
            )
            for name, cluster in host.clusters.items()
        }
        ports: dict[tuple[str, int], dict[str, clusters.Cluster]] = {}
        for name, cluster in host.clusters.items():
            ports.setdefault((cluster.me.address, cluster.port), {})[name] = cluster
        keys = {name: caller.key for name, caller in callers.items()}
        self._servers = [cluster_server.Server(served, keys, self.act) for served in ports.values()]
        self._over = threading.Event()

    def run(self) -> None:
        """Answer and watch until told to end."""
        for server in self._servers:
            threading.Thread(target=server.serve_forever, daemon=True).start()
        self.member.resume()
        while not self._over.wait(_STEP_S):
            for step in (self.member.expire, *(watch.step for watch in self.watches.values())):
                try:
                    step()
                except common.Problem as problem:
                    cluster_work.tell(str(problem))
        for server in self._servers:
            server.shutdown()

    def end(self, *_: object) -> None:
        """Have `run` return."""
        self._over.set()

    def act(self, cluster: clusters.Cluster, verb: str, body: Answer) -> Answer:
        """One verb of a member's; Problem for one that is unknown or cannot be done."""
        watch = self.watches[cluster.name]
        verbs = {
            "state": self.member.state,
            "prepare": self.member.prepare,
            "drop": self.member.drop,
            "start": self.member.start,
            "commit": self.member.commit,
            "abort": self.member.abort,
            "beat": watch.heard,
            "end": watch.end,
            "facts": self._facts,
            "token": self._token,
            "rollout": self._rollout,
        }
        if verb not in verbs:
            known = ", ".join(verbs)
            raise common.Problem(
                f"unknown verb {verb!r}; known: {known}. Remedy: deploy to every member",
                common.EXIT_USAGE,
            )
        return verbs[verb](body)

    def _facts(self, body: Answer) -> Answer:
        host = self.member.host
        target = host.target(body["target"])
        cluster = host.cluster(target.name)
        if cluster is None:
            raise common.Problem(f"{target.name} is no target of a cluster here: run the deploy")
        return {"facts": cluster_facts.gather(target, cluster, self.member.paths)}

    def _rollout(self, body: Answer) -> Answer:
        return {"said": cluster_rollout.here(body["words"])}

    def _token(self, body: Answer) -> Answer:
        target = self.member.host.target(body["target"])
        try:
            canary = engine.canary(target, engine.api_key(target), _TOKEN_S)
        except (engine.NotReady, engine.Refused) as answer:
            raise common.Problem(f"no token: {answer}") from answer
        return {"said": f"{canary.rate:.1f} tok/s"}


def main(argv: list[str], paths: common.Paths | None = None) -> int:
    """Command line; see the module's docstring."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, usual in (
        ("lease", cluster_member.LEASE_S),
        ("beat", cluster_watch.BEAT_S),
        ("look", cluster_watch.LOOK_S),
        ("token-wait", cluster_watch.TOKEN_WAIT_S),
    ):
        parser.add_argument(f"--{name}", type=float, default=usual, metavar="SECONDS")
    options = parser.parse_args(argv)
    try:
        agent = Agent(paths or common.Paths(), options)
    except OSError as error:
        raise common.Problem(
            f"cannot listen: {error.strerror}. Remedy: ip address, is the fabric's address there?"
        ) from error
    signal.signal(signal.SIGTERM, agent.end)
    agent.run()
    return common.EXIT_DONE


if __name__ == "__main__":
    sys.exit(common.ended("lockstep cluster", lambda: main(sys.argv[1:])))
