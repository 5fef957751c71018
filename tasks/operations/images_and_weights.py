"""Images and weights: present, whole, and equal to their pins."""

from __future__ import annotations

from collections.abc import Mapping

from pyinfra import host
from pyinfra.api import operation

from lockstep.deploy.questions import WEIGHTS_SPEC
from lockstep.files.managed_file import PROXY_ENVIRONMENT, command
from lockstep.lock.image_reference import PLATFORMS
from lockstep.tasks.run import reader_answers as facts
from lockstep.tasks.run import remote_commands
from lockstep.tasks.run.remote_commands import Commands


@operation()
def pull_images(origins: Mapping[str, str], architecture: str, proxy: bool = False) -> Commands:
    """Pull missing or incomplete images by digest; refuse an architecture other than the host's.

    Args:
        origins: "127.0.0.1:7078/NAME@sha256:…" → "https://REGISTRY/v2/REPOSITORY".
        architecture: As `uname -m` says it.
        proxy: Whether to go through the proxy of `proxy.env`, whose URL may hold a password.
    """
    present = facts.reader_answer("docker.image_architectures") or {}
    platform = PLATFORMS[architecture]
    missing = [
        reference for reference in origins if present.get(reference) != platform.partition("/")[2]
    ]
    if not missing:
        host.noop(f"{len(origins)} images are here")
    for reference in missing:
        options = ("--platform", platform, "--from", origins[reference])
        program = command("pull-image", reference, *options)
        name = "image-" + reference.rpartition(":")[2][:12]
        yield remote_commands.transient_job_command(
            name, program, *(["--setenv-file", PROXY_ENVIRONMENT] if proxy else [])
        )


@operation()
def fetch_weights(user: str, token_file: str, proxy: bool = False) -> Commands:
    """Fetch, verify and repair every model of this host's weights.json.

    Args:
        user: Account that owns the hub cache.
        token_file: File on the host that may hold a hub token.
        proxy: Whether to go through the proxy of `proxy.env`, whose URL may hold a password.
    """
    states = facts.reader_answer("weights")
    if states and all(state["state"] == "complete" for state in states.values()):
        host.noop(f"{len(states)} repositories are complete")
        return
    for name, state in (states or {}).items():
        if state["state"] != "complete":
            gigabytes = (state["bytes_total"] - state["bytes_present"]) / 1e9
            host.log(f"{name.partition('@')[0]}: {gigabytes:.1f} GB to fetch")
    yield weights_fetch_job("weights", user, token_file, proxy)


def weights_fetch_job(
    name: str, user: str, token_file: str, proxy: bool, *more: str
) -> remote_commands.StreamedCommand:
    """Return the job that fetches the weights, or the part that further options name."""
    program = command("fetch-weights", WEIGHTS_SPEC)
    options = ["--setenv-file", PROXY_ENVIRONMENT] if proxy else []
    words = [*program, "--token-file", token_file, *more]
    return remote_commands.transient_job_command(name, words, "--uid", user, *options)
