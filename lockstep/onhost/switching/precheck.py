"""Checks before anything is stopped: unit, link, image, weights, memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lockstep.onhost.core import config, errors, layout, unified_memory
from lockstep.onhost.core.memory_requirement import rounded_down, rounded_up
from lockstep.onhost.docker import docker_api
from lockstep.onhost.engine import foreign_listeners, gpu_holders, living_processes
from lockstep.onhost.system import link_presence
from lockstep.onhost.systemd import units
from lockstep.onhost.weights import weights_spec, weights_state

#: Limit of seconds for Docker's answer. These queries take it milliseconds.
DOCKER_S = 15.0


@dataclass(frozen=True)
class Precheck:
    """Checks against one host as it is: `state` has every model's unit by name."""

    host: config.HostConfig
    paths: layout.Paths
    docker: docker_api.Docker
    state: Mapping[str, units.Unit]

    def check_start(self, model: config.Model) -> None:
        """Raise Problem if a start of `model` cannot work; it says that nothing was stopped."""
        unit = self.state[model.unit]
        if not unit.is_installed:
            raise _refusal(f"{model.unit} is {unit.load}", "run the deploy")
        if cluster := self.host.cluster_of_model(model.name):
            link_presence.refuse_missing_links(model.name, cluster, self.paths)
        self._refuse_taken_port(model)
        self._refuse_unreachable_docker(model)
        self._check_memory(model)
        self._check_image(model)
        self._check_weights(model)

    def available_and_held_gib(self) -> tuple[float, float]:
        """Return GiB available now, and the most GiB that the running units can hold.

        The kernel charges no process for its GPU memory, so the present use of a unit is unknown;
        the most that its engine takes is known.
        """
        now = unified_memory.memory(self.paths.proc)
        up = {
            model.unit: model.memory_need.serving_peak_gib(now.total)
            for model in self.host.models.values()
            if self.state[model.unit].up
        }
        return now.available, sum(up.values())

    def _refuse_taken_port(self, model: config.Model) -> None:
        # The kernel tells the owner of a socket to root alone; the gate checks again.
        if not units.is_root():
            return
        if strangers := foreign_listeners.foreign_listener_texts(
            model, self.paths, self.host.models.values()
        ):
            url = model.at_engine_address.url
            raise _refusal(
                f"{model.name}: {' and '.join(strangers)} listens at {url}",
                "stop it, or set another port of the model",
            )

    def _refuse_unreachable_docker(self, model: config.Model) -> None:
        """Refuse if Docker, which must remove other models' containers, does not reach them."""
        # A rehearsal by an account without access to Docker reports the rest.
        if not units.is_root():
            return
        for other_model in self.host.other_models(model.name):
            container = other_model.container
            if not container or not (
                self.state[other_model.unit].up
                or living_processes.processes_of_model(other_model, self.paths)
            ):
                continue
            try:
                if self.docker.container(container):
                    self.docker.check_containerd_answers(container)
            except docker_api.DockerError as error:
                raise errors.Problem(f"{other_model.name}: {error}; nothing was stopped") from error
            except docker_api.DockerUnreachable as error:
                raise errors.Problem(
                    f"{model.name}: {other_model.name} lives in container {container}, and "
                    f"{error}; "
                    "nothing was stopped. `switch.sh none` ends it without Docker"
                ) from error

    def _check_memory(self, model: config.Model) -> None:
        total = unified_memory.memory(self.paths.proc).total
        need = model.memory_need.available(total)
        if need > total:
            raise _refusal(
                f"{model.name} needs {rounded_up(need)} GiB, this host has {rounded_down(total)}",
                "bind a smaller recipe to the model",
            )
        available, held_gib = self.available_and_held_gib()
        # With nothing to lose the gate decides: it can wait for memory that is on its way back.
        if held_gib and need > available + held_gib:
            raise _refusal(
                f"{model.name} needs {rounded_up(need)} GiB; {rounded_down(available)} GiB are "
                f"available and stopping what is hot frees at most {rounded_down(held_gib)}",
                "; ".join(gpu_holders.foreign_holder_sentences(self.host, self.paths))
                or "see what else holds memory with `ps -eo rss,pid,user,args --sort=-rss | head`",
            )

    def _check_image(self, model: config.Model) -> None:
        if not model.container or not model.image:
            return
        try:
            self.docker.request_json("GET", f"/images/{model.image}/json")
            self.docker.check_containerd_answers()
        except docker_api.DockerError as error:
            repository, _, digest = model.image.partition("@")
            raise _refusal(
                f"{model.name}: image {repository} {digest[:19]} is not on this host",
                "run the deploy, it pulls it",
            ) from error
        except docker_api.DockerUnreachable as error:
            raise errors.Problem(f"{model.name}: {error}; nothing was stopped") from error

    def _check_weights(self, model: config.Model) -> None:
        for checkpoint in model.weights:
            lacking = self._missing_model_files(checkpoint)
            if lacking:
                more = f" and {len(lacking) - 1} more" if lacking[1:] else ""
                raise _refusal(
                    f"{model.name}: weights {checkpoint} are not whole on this host: "
                    f"{lacking[0]}{more}",
                    "run the deploy, it fetches them",
                )

    def _missing_model_files(self, checkpoint: str) -> list[str]:
        """Return a model's files that are missing or of the wrong size, from `stat` calls alone."""
        if checkpoint.startswith("/"):
            place = self.paths.root / checkpoint.lstrip("/")
            return [] if place.exists() else [f"{checkpoint} does not exist"]
        try:
            state = weights_state.state_of_model(self.paths.weights_list, checkpoint)
        except LookupError as error:
            return [str(error)]
        except (OSError, weights_spec.WeightsSpecError) as error:
            return [f"{self.paths.weights_list} cannot be read: {errors.why(error)}"]
        return [*state["missing"], *state["wrong_size"], *state["not_merged"]]


def _refusal(reason: str, remedy: str) -> errors.Problem:
    return errors.Problem(f"{reason}; nothing was stopped. Remedy: {remedy}")
