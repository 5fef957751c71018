"""Make sure that a container is gone: kill it, remove it, wait until its name is free.

usage: stop-container NAME [--wait SECONDS]

Runs in ExecStopPost= of a container unit: a killed docker client leaves its container running, and
then the unit must not count as stopped. Silent if there is nothing to do. A container without our
label belongs to somebody else, and stays.

The kernel ends an engine's processes through the slice of its container, because Docker may hang.
The container's name is free when Docker answers again.

exit codes: 0 gone, 1 still there, somebody else's, or not known because Docker does not answer,
            2 wrong use
"""

from __future__ import annotations

from lockstep.onhost.core import clock, errors, event_lines, layout, program_command_lines
from lockstep.onhost.docker import container_processes, docker_api

# Docker answers in milliseconds, and removes a container without processes within seconds.
_DOCKER_S = 20.0


def stop(docker: docker_api.Docker, name: str, wait_s: float, paths: layout.Paths) -> bool:
    """End and remove container `name`; tell whether there was one.

    Raises Problem if the container outlives `wait_s`, or is not ours. Raises DockerUnreachable if
    Docker does not answer; then no process that the kernel knows in its slice is left.
    """
    start_time = clock.now()
    was_there = bool(container_processes.kill_processes(name, paths, wait_s))
    while (container := docker.container(name)) is not None:
        if not docker_api.is_ours(container["Config"].get("Labels")):
            raise errors.Problem(
                f"container {name} is not Lockstep's (it lacks the label {docker_api.LABEL}) and "
                f"stays. Remedy: docker rename or docker rm {name}"
            )
        was_there = True
        if clock.now() - start_time >= wait_s:
            raise errors.Problem(
                f"container {name} is still there {wait_s:.0f} s after it was killed. "
                "Remedy: sudo systemctl restart docker, then docker rm -f " + name
            )
        # By its id: another container of that name was not checked.
        docker.remove(container["Id"])
        clock.sleep(0.1)
    return was_there


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Run the command line; see the module's docstring."""
    parser = program_command_lines.parser(__doc__)
    parser.add_argument("name")
    parser.add_argument("--wait", type=float, default=60.0, metavar="SECONDS")
    options = parser.parse_args(argv)
    paths = paths or layout.Paths()
    docker = docker_api.Docker(paths.docker_socket, timeout=min(options.wait, _DOCKER_S))
    killed_processes = container_processes.kill_processes(options.name, paths, options.wait)
    try:
        was_there = stop(docker, options.name, options.wait, paths) or bool(killed_processes)
    except docker_api.DockerUnreachable as error:
        if not killed_processes:
            raise
        event_lines.say(f"lockstep: container {options.name} was ended without Docker: {error}")
        return errors.EXIT_DONE
    except docker_api.DockerError as error:
        raise errors.Problem(f"container {options.name}: {error}") from error
    if was_there:
        event_lines.say(f"lockstep: container {options.name} is gone")
    return errors.EXIT_DONE
