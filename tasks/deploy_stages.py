"""The whole stack, top to bottom, for a checkout's `deploy.py` and an owner's."""

from __future__ import annotations

from pyinfra import config

from lockstep.tasks import (
    base,
    fabric,
    firewall,
    gateway,
    images,
    keys_shared_by_hosts,
    model_services,
    monitoring,
    peer_copies,
    preflight,
    read_back_state,
    switch_and_watches,
    venv_engine,
    webui,
    weights,
)
from lockstep.tasks.run import ssh_connection


def deploy() -> None:
    """Deploy everything to the current host."""
    config.REQUIRE_PYINFRA_VERSION = "~=3.10"

    ssh_connection.refuse_prompt_without_terminal()
    ssh_connection.set_socket_options()

    # Each stage has its own line: pyinfra tells operations apart by the lines that call them.
    preflight.preflight()
    base.base()
    firewall.firewall()
    fabric.fabric()
    peer_copies.serve_peers()
    venv_engine.pytorch()
    venv_engine.vllm()
    venv_engine.flashinfer()
    venv_engine.check()
    images.images()
    weights.weights()
    keys_shared_by_hosts.share_keys()
    model_services.services()
    gateway.gateway()
    switch_and_watches.switch_script()
    webui.webui()
    monitoring.monitoring()
    peer_copies.stop_serving_peers()
    read_back_state.read_back_state()
