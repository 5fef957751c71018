"""Make sure that a container is gone: kill it, remove it, wait until its name is free.

usage: stop-container NAME [--wait SECONDS]

Runs in ExecStopPost= of a container unit: a killed docker client leaves its container running, and
then the unit must not count as stopped. Silent when there is nothing to do. A container without
our label is somebody else's, and stays.

An engine's processes are ended by the kernel, through the slice of its container: Docker may hang.
Its name is free when Docker answers again.

exit codes: 0 gone, 1 still there, somebody else's, or not known because Docker does not answer,
            2 wrong use
"""

from __future__ import annotations

from lockstep.onhost.core import clock, errors, layout, output, program
from lockstep.onhost.docker import container_group, docker_api

# Docker answers in milliseconds, and removes a container whose processes are gone within seconds.
_DOCKER_S = 20.0


def stop(docker: docker_api.Docker, name: str, wait_s: float, paths: layout.Paths) -> bool:
    """End and remove container `name`; whether there was one.

    Problem when it outlives `wait_s`, and when it is not ours. Where Docker does not answer, this
    is Unreachable, and no process that the kernel knows in its slice is left.
    """
    started = clock.now()
    found = bool(container_group.end(name, paths, wait_s))
    while (container := docker.container(name)) is not None:
        if not docker_api.ours(container["Config"].get("Labels")):
            raise errors.Problem(
                f"container {name} is not Lockstep's (it lacks the label {docker_api.LABEL}) and "
                f"stays. Remedy: docker rename or docker rm {name}"
            )
        found = True
        if clock.now() - started >= wait_s:
            raise errors.Problem(
                f"container {name} is still there {wait_s:.0f} s after it was killed. "
                "Remedy: sudo systemctl restart docker, then docker rm -f " + name
            )
        # By its id: another one of that name was not looked at.
        docker.remove(container["Id"])
        clock.sleep(0.1)
    return found


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Command line; see the module's docstring."""
    parser = program.parser(__doc__)
    parser.add_argument("name")
    parser.add_argument("--wait", type=float, default=60.0, metavar="SECONDS")
    options = parser.parse_args(argv)
    paths = paths or layout.Paths()
    docker = docker_api.Docker(paths.docker_socket, timeout=min(options.wait, _DOCKER_S))
    ended = container_group.end(options.name, paths, options.wait)
    try:
        found = stop(docker, options.name, options.wait, paths) or bool(ended)
    except docker_api.Unreachable as error:
        if not ended:
            raise
        output.say(f"lockstep: container {options.name} was ended without Docker: {error}")
        return errors.EXIT_DONE
    except docker_api.DockerError as error:
        raise errors.Problem(f"container {options.name}: {error}") from error
    if found:
        output.say(f"lockstep: container {options.name} is gone")
    return errors.EXIT_DONE
