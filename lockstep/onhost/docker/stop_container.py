"""Make sure that a container is gone: kill it, remove it, wait until its name is free.

usage: stop-container NAME [--wait SECONDS]

Runs in ExecStopPost= of a container unit: a killed docker client leaves its container running, and
then the unit must not count as stopped. Silent when there is nothing to do. A container without
our label is somebody else's, and stays.

exit codes: 0 gone, 1 still there or somebody else's, 2 wrong use
"""

from __future__ import annotations

import time

from lockstep.onhost.core import errors, layout, output, program
from lockstep.onhost.docker import docker_api


def stop(docker: docker_api.Docker, name: str, wait_s: float) -> bool:
    """Remove container `name`; whether there was one.

    Problem when it outlives `wait_s`, and when it is not ours.
    """
    started = time.monotonic()
    found = False
    while (container := docker.container(name)) is not None:
        if not docker_api.ours(container["Config"].get("Labels")):
            raise errors.Problem(
                f"container {name} is not Lockstep's (it lacks the label {docker_api.LABEL}) and "
                f"stays. Remedy: docker rename or docker rm {name}"
            )
        found = True
        if time.monotonic() - started >= wait_s:
            raise errors.Problem(
                f"container {name} is still there {wait_s:.0f} s after it was killed. "
                "Remedy: sudo systemctl restart docker, then docker rm -f " + name
            )
        # By its id: another one of that name was not looked at.
        docker.remove(container["Id"])
        time.sleep(0.1)
    return found


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Command line; see the module's docstring."""
    parser = program.parser(__doc__)
    parser.add_argument("name")
    parser.add_argument("--wait", type=float, default=60.0, metavar="SECONDS")
    options = parser.parse_args(argv)
    docker = docker_api.Docker((paths or layout.Paths()).docker_socket, timeout=options.wait)
    try:
        found = stop(docker, options.name, options.wait)
    except docker_api.DockerError as error:
        raise errors.Problem(f"container {options.name}: {error}") from error
    if found:
        output.say(f"lockstep: container {options.name} is gone")
    return errors.EXIT_DONE
