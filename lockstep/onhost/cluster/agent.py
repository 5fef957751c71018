"""The agent of this Spark: answers the other members, and watches what its clusters run.

usage: cluster-agent [--lease SECONDS] [--beat SECONDS] [--look SECONDS] [--token-wait SECONDS]

Runs as root in lockstep-cluster.service on every member. Listens at the addresses and ports of
models.json, for members only, whose certificates are of our authority.

exit codes: 0 told to end, 1 cannot listen or has no certificate, 2 wrong use or unreadable
            configuration
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from dataclasses import asdict
from functools import partial

from lockstep.onhost.access import peer_tls
from lockstep.onhost.cluster import (
    launch_check,
    long_work,
    member_client,
    member_server,
    participant,
    run_records,
)
from lockstep.onhost.cluster import run_watch as cluster_watch
from lockstep.onhost.cluster.member_client import Answer
from lockstep.onhost.core import config, errors, layout, program_command_lines, topology
from lockstep.onhost.engine import openai_api

_TOKEN_S = 30.0
_STEP_S = 1.0


class Agent:
    """The member, its watches, and the ports at which both answer."""

    def __init__(self, paths: layout.Paths, times: participant.Times) -> None:
        host = config.load_host(paths.models)
        if not host.clusters:
            raise errors.Problem("this host is in no cluster", errors.EXIT_USAGE)
        run_records.end_runs_before_boot(paths, host)
        self.member = participant.MemberAgent(paths, times)
        self.watches: dict[str, cluster_watch.RunWatch] = {}
        ports: dict[tuple[str, int], list[topology.Cluster]] = {}
        for name, cluster in host.clusters.items():
            caller = member_client.MemberClient.from_cluster(cluster, paths)
            self.watches[name] = cluster_watch.RunWatch(self.member, caller)
            ports.setdefault((cluster.own_member.address, cluster.port), []).append(cluster)
        identity = peer_tls.identity_path(paths, peer_tls.AGENT, host.name)
        tls = peer_tls.make_context(identity, is_server=True)
        self._servers = [
            member_server.ClusterServer(clusters, tls, self.execute_verb)
            for clusters in ports.values()
        ]
        self._over = threading.Event()

    def run(self) -> None:
        """Answer and watch until told to end."""
        for server in self._servers:
            threading.Thread(target=server.serve_forever, daemon=True).start()
        self.member.undo_earlier_agents_part()
        while not self._over.wait(_STEP_S):
            self.check_switch_and_clusters()
        for server in self._servers:
            server.shutdown()

    def check_switch_and_clusters(self) -> None:
        """Look once at the part in a switch and at every cluster, and act."""
        for step in (
            self.member.undo_if_coordinator_silent,
            *(watch.check_run for watch in self.watches.values()),
        ):
            try:
                step()
            except errors.Problem as problem:
                long_work.print_to_journal(str(problem))

    def request_agent_end(self, *_: object) -> None:
        """Make `run` return."""
        self._over.set()

    def execute_verb(self, cluster: topology.Cluster, verb: str, body: Answer) -> Answer:
        """Execute one verb of a member; raise Problem if it is unknown or cannot be done."""
        watch = self.watches[cluster.name]
        verbs: dict[str, Callable[[Answer], Answer]] = {
            "state": self.member.state,
            "prepare": self.member.join_switch,
            "drop": self.member.begin_stopping,
            "start": self.member.start,
            "commit": self.member.commit_switch,
            "abort": self.member.abort,
            "beat": watch.receive_beat,
            "end": watch.end_cluster_here,
            "facts": partial(self._launch_facts, cluster),
            "token": self._ask_test_question,
        }
        if verb not in verbs:
            verb_names = ", ".join(verbs)
            raise errors.Problem(
                f"unknown verb {verb!r}; known: {verb_names}. Remedy: deploy to every member",
                errors.EXIT_USAGE,
            )
        return verbs[verb](body)

    def _launch_facts(self, cluster: topology.Cluster, body: Answer) -> Answer:
        model = self.member.host.model(body["model"])
        return {"facts": launch_check.launch_facts(model, cluster, self.member.paths)}

    def _ask_test_question(self, body: Answer) -> Answer:
        model = self.member.host.model(body["model"]).at_engine_address
        try:
            test_answer = openai_api.ask_test_question(model, openai_api.api_key(model), _TOKEN_S)
        except (openai_api.NotReady, openai_api.RequestRefusal) as answer:
            raise errors.Problem(f"no token: {answer}") from answer
        return {"said": test_answer}


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Run the command line; see the module's docstring."""
    parser = program_command_lines.parser(__doc__)
    for name, usual in asdict(participant.Times()).items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=float, default=usual, metavar="SECONDS")
    times = participant.Times(**vars(parser.parse_args(argv)))
    try:
        agent = Agent(paths or layout.Paths(), times)
    except OSError as error:
        raise errors.Problem(
            f"cannot listen: {error.strerror}. Remedy: ip address, is the fabric's address there?"
        ) from error
    signal.signal(signal.SIGTERM, agent.request_agent_end)
    agent.run()
    return errors.EXIT_DONE
