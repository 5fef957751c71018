"""A deploy that changes a hot model of a cluster: in force on all members, or back on all.

Its agent has each member return by `rollout.py`, in a unit of its own: the agent itself may write
nothing of the system.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from lockstep.onhost.cluster import wire_client
from lockstep.onhost.core import common
from lockstep.onhost.core.program import command
from lockstep.onhost.records import before, generations
from lockstep.onhost.switching import rollout_mark, switch_job

#: What a member's part of a return may take, besides a switch there that is waited for.
LIMIT_S = 300.0
_TOKEN_S = 45.0


def go(paths: common.Paths, name: str, rollout: str, gate: Sequence[str] = ()) -> int:
    """Start a group with what was deployed; where that fails, every member returns.

    Args:
        name: The cluster's target, which is down now and was hot before.
        rollout: The id under which the members kept what they had.
        gate: A program that has to end with 0 after the token.

    Returns:
        0 done, 1 it is hot again as it was, 3 its fallback is, 4 no model is hot.
    """
    # The files of before may know neither the target nor the cluster.
    members = Members(common.load_host(paths.targets), paths, name)
    with rollout_mark.marked(paths, name, rollout):
        why = _refusal(members, name, gate)
        if why:
            common.say(f"{name}: {why}; every member returns to what there was")
            code = returned(members, name, ["ended", rollout, why], common.EXIT_FAILED)
            # Last: it is what the deploy repeats at its end.
            common.say(f"{name}: with what was deployed {why}")
            return code
        members.tell(["ended", rollout])
    common.say(f"{name} is hot on all members with what was deployed")
    return common.EXIT_DONE


def back(paths: common.Paths, name: str, why: str) -> int:
    """Every member returns to its previous generation on record, and the group is started."""
    members = Members(common.load_host(paths.targets), paths, name)
    return returned(members, name, ["back", *([why] if why else [])], common.EXIT_DONE)


def mend(paths: common.Paths, name: str, rollout: str) -> int:
    """`go` did not come to its own end: as where it fails."""
    common.say(f"the rollout of {name} was cut off; every member returns to what there was")
    members = Members(common.load_host(paths.targets), paths, name)
    return returned(members, name, ["ended", rollout, "it was cut off"], common.EXIT_DONE)


def ended(paths: common.Paths, rollout: str, why: str = "") -> int:
    """This member's part: forget what was kept under that id, or return to it and say `why`."""
    with rollout_mark.alone(paths):
        kept = before.there(paths)
        if kept is None or kept.get("rollout") != rollout:
            common.say("nothing was changed here")
            return common.EXIT_DONE
        if why:
            before.restore(paths, kept)
            _record(paths, int(kept["since"]), why)
            common.say("as it was before this deploy")
        paths.before.unlink(missing_ok=True)
    return common.EXIT_DONE


def _record(paths: common.Paths, since: int, why: str) -> None:
    """The deploy may have written its record already; the newest one says what this host is."""
    found = generations.records(paths)
    was = next((record for record in found[1:] if record["number"] == since), None)
    if was is not None:
        generations.record(paths, was, f"returned from generation {found[0]['number']}: {why}")


class Members:
    """Everybody in the cluster that runs a target, this host included."""

    def __init__(self, host: common.Host, paths: common.Paths, name: str) -> None:
        cluster = host.cluster(name)
        if cluster is None:
            raise common.Problem(f"{name} is no model of a cluster here", common.EXIT_USAGE)
        self.first = cluster.first
        self._members = {member.name: member for member in cluster.members}
        self._caller = wire_client.Caller.of(cluster, paths)

    def tell(self, words: Sequence[str]) -> None:
        """Have `rollout.py` run with these words on every member; what goes wrong is said."""
        answers = wire_client.at_once(
            lambda name: self._caller.ask(
                self._members[name], "rollout", {"words": list(words)}, LIMIT_S
            ),
            self._members,
        )
        for name, answer in answers.items():
            said = answer["said"] if isinstance(answer, dict) else answer
            common.say(f"{name}: {said}")

    def token(self, name: str) -> str:
        """The rate of a token from rank 0; Problem where none comes."""
        return str(self._caller.ask(self.first, "token", {"target": name}, _TOKEN_S)["said"])


def program() -> list[str]:
    """The command line of the program whose words these are."""
    return [*command("rollout")]


def here(words: Sequence[str]) -> str:
    """For a member's agent: run `rollout.py` as the system's own job; what it said last.

    Problem where it fails, or for words that are no return.
    """
    if words[0] not in ("ended", "back") or not all(isinstance(word, str) for word in words):
        raise common.Problem(f"no return: {words}", common.EXIT_USAGE)
    argv = ["systemd-run", "--quiet", "--wait", "--pipe", "--collect"]
    argv += ["--unit=lockstep-return", "--description=Returns this host to what it was"]
    done = common.run([*argv, "--", *program(), *words], LIMIT_S)
    said = " ".join((done.stdout if done.returncode == 0 else done.stderr).split("\n")[-2:])
    if done.returncode != 0:
        raise common.Problem(f"rollout.py {words[0]} failed: {said.strip()}")
    return said.strip()


def returned(members: Members, name: str, words: Sequence[str], done: int) -> int:
    """Take the group down, have all members return, and start it again; `done` when it is hot."""
    _switched("none")
    members.tell(words)
    code = _switched(name)
    if code == common.EXIT_DONE:
        common.say(f"{name} is hot again on all members, as it was before")
        return done
    if code == common.EXIT_FALLBACK:
        return code
    common.say(f"NO MODEL IS HOT: {name} did not come back either")
    return common.EXIT_NOTHING_HOT


def _refusal(members: Members, name: str, gate: Sequence[str]) -> str:
    """Why a group may not stay as it was deployed; "" when it may."""
    if _switched(name) != common.EXIT_DONE:
        return "it does not start"
    try:
        common.say(f"{name}: a token came, {members.token(name)}")
    except common.Problem as problem:
        return f"no token comes ({problem})"
    if gate and subprocess.run(list(gate), check=False).returncode != 0:
        return "the gate refused it"
    return ""


def _switched(name: str) -> int:
    """Exit code of a switch; its lines go where ours go."""
    return subprocess.run([*switch_job.program(), name, "--wait"], check=False).returncode
