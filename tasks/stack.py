"""The whole stack, top to bottom, for a checkout's `deploy.py` and an owner's."""

from __future__ import annotations

from pyinfra import config

from lockstep.tasks import (
    base,
    connection,
    engine,
    fabric,
    firewall,
    gateway,
    images,
    monitoring,
    preflight,
    services,
    shared_keys,
    sharing,
    switch,
    verify,
    webui,
    weights,
)


def deploy() -> None:
    """Deploy everything to the current host."""
    config.REQUIRE_PYINFRA_VERSION = "~=3.10"

    connection.ask_at_terminal_only()
    connection.set_socket_options()

    # Each stage has its own line: pyinfra tells operations apart by the lines that call them.
    preflight.preflight()
    base.base()
    firewall.firewall()
    fabric.fabric()
    sharing.serve_peers()
    engine.pytorch()
    engine.vllm()
    engine.flashinfer()
    engine.check()
    images.images()
    weights.weights()
    shared_keys.shared_keys()
    services.services()
    gateway.gateway()
    switch.switch()
    webui.webui()
    monitoring.monitoring()
    sharing.stop_serving_peers()
    verify.verify()
