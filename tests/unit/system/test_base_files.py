"""Files that a host gets before any engine, and those among them with a password."""

from __future__ import annotations

from a_spark import spark

from lockstep.system.base_files import DOCKER_PROXY, docker_restart_key, host_files


def drop_in(proxy: str) -> str:
    settings = spark(proxy={"http": proxy}).settings
    text = next(file.text for file in host_files(settings) if file.path == DOCKER_PROXY)
    assert docker_restart_key(settings) in text
    return text


def test_the_drop_in_of_docker_tells_proxies_apart_and_no_passwords() -> None:
    """Everybody may read it, and could try passwords until one has the same hash."""
    assert drop_in("http://proxy.lan:3128") != drop_in("http://proxy.lan:3129")
    assert drop_in("http://anna:one@proxy.lan:3128") == drop_in("http://anna:two@proxy.lan:3128")
