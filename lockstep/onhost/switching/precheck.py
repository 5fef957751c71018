"""Checks before anything is stopped: unit, link, image, weights, memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lockstep.onhost.core import config, errors, layout, meminfo
from lockstep.onhost.core.need import rounded_down, rounded_up
from lockstep.onhost.docker import docker_api
from lockstep.onhost.engine import alive, gpu_holders, port
from lockstep.onhost.system import cluster_link
from lockstep.onhost.systemd import units
from lockstep.onhost.weights import weights_spec, weights_state

#: Most seconds that Docker may take to answer. What it is asked here takes it milliseconds.
DOCKER_S = 15.0


@dataclass(frozen=True)
class Precheck:
    """Checks against one host as it is: `state` has every target's unit by name."""

    host: config.Host
    paths: layout.Paths
    docker: docker_api.Docker
    state: Mapping[str, units.Unit]

    def check(self, target: config.Target) -> None:
        """Problem when a start of `target` cannot work; it says that nothing was stopped."""
        unit = self.state[target.unit]
        if not unit.installed:
            raise _refused(f"{target.unit} is {unit.load}", "run the deploy")
        if cluster := self.host.cluster(target.name):
            cluster_link.check(target.name, cluster, self.paths)
        self._port(target)
        self._docker_of_others(target)
        self._memory(target)
        self._image(target)
        self._weights(target)

    def promised(self) -> tuple[float, float]:
        """GiB available now, and the most GiB that the units which are up can hold.

        The kernel charges no process for what it holds on the GPU, so what a unit holds cannot be
        read; what its engine takes at most is known.
        """
        now = meminfo.memory(self.paths.proc)
        up = {
            target.unit: target.need.held(now.total)
            for target in self.host.targets.values()
            if self.state[target.unit].up
        }
        return now.available, sum(up.values())

    def _port(self, target: config.Target) -> None:
        # Whose a socket is, the kernel tells root alone; the gate asks again.
        if not units.is_root():
            return
        if others := port.strangers(target, self.paths, self.host.targets.values()):
            raise _refused(
                f"{target.name}: {' and '.join(others)} listens at {target.itself.url}",
                "stop it, or set another port of the target",
            )

    def _docker_of_others(self, target: config.Target) -> None:
        """Refuse where Docker, which removes containers, does not reach those of other targets."""
        # A rehearsal of an account that may not ask Docker tells of the rest.
        if not units.is_root():
            return
        for each in self.host.others(target.name):
            container = each.container
            if not container or not (self.state[each.unit].up or alive.processes(each, self.paths)):
                continue
            try:
                if self.docker.container(container):
                    self.docker.ask_containerd(container)
            except docker_api.DockerError as error:
                raise errors.Problem(f"{each.name}: {error}; nothing was stopped") from error
            except docker_api.Unreachable as error:
                raise errors.Problem(
                    f"{target.name}: {each.name} lives in container {container}, and {error}; "
                    "nothing was stopped. `switch.sh none` ends it without Docker"
                ) from error

    def _memory(self, target: config.Target) -> None:
        total = meminfo.memory(self.paths.proc).total
        need = target.need.available(total)
        if need > total:
            raise _refused(
                f"{target.name} needs {rounded_up(need)} GiB, this host has {rounded_down(total)}",
                "bind a smaller recipe to the target",
            )
        available, held = self.promised()
        # With nothing to lose the gate decides: it can wait for memory that is on its way back.
        if held and need > available + held:
            raise _refused(
                f"{target.name} needs {rounded_up(need)} GiB; {rounded_down(available)} GiB are "
                f"available and stopping what is hot frees at most {rounded_down(held)}",
                "; ".join(gpu_holders.in_words(self.host, self.paths))
                or "see what else holds memory with `ps -eo rss,pid,user,args --sort=-rss | head`",
            )

    def _image(self, target: config.Target) -> None:
        if not target.container or not target.image:
            return
        try:
            self.docker.json("GET", f"/images/{target.image}/json")
            self.docker.ask_containerd()
        except docker_api.DockerError as error:
            repository, _, digest = target.image.partition("@")
            raise _refused(
                f"{target.name}: image {repository} {digest[:19]} is not on this host",
                "run the deploy, it pulls it",
            ) from error
        except docker_api.Unreachable as error:
            raise errors.Problem(f"{target.name}: {error}; nothing was stopped") from error

    def _weights(self, target: config.Target) -> None:
        for model in target.weights:
            lacking = self._lacking(model)
            if lacking:
                more = f" and {len(lacking) - 1} more" if lacking[1:] else ""
                raise _refused(
                    f"{target.name}: weights {model} are not whole on this host: "
                    f"{lacking[0]}{more}",
                    "run the deploy, it fetches them",
                )

    def _lacking(self, model: str) -> list[str]:
        """Files of a model that are missing or of the wrong size, from `stat` calls alone."""
        if model.startswith("/"):
            place = self.paths.root / model.lstrip("/")
            return [] if place.exists() else [f"{model} does not exist"]
        try:
            state = weights_state.of_model(self.paths.weights, model)
        except LookupError as error:
            return [str(error)]
        except (OSError, weights_spec.BadSpec) as error:
            return [f"{self.paths.weights} cannot be read: {errors.why(error)}"]
        return [*state["missing"], *state["wrong_size"], *state["not_merged"]]


def _refused(what: str, remedy: str) -> errors.Problem:
    return errors.Problem(f"{what}; nothing was stopped. Remedy: {remedy}")
