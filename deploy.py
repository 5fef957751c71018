"""The whole stack, top to bottom: `pyinfra inventories/spark.py deploy.py`."""

from pyinfra import config

from tasks import (
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

config.REQUIRE_PYINFRA_VERSION = "~=3.10"

connection.ask_at_terminal_only()
connection.tune()

# Each on its own line: pyinfra tells operations apart by the lines that call them.
preflight.preflight()
base.base()
firewall.firewall()
fabric.fabric()
sharing.opened()
engine.pytorch()
engine.vllm()
engine.flashinfer()
engine.checked()
images.images()
weights.weights()
shared_keys.shared_keys()
services.services()
gateway.gateway()
switch.switch()
webui.webui()
monitoring.monitoring()
sharing.closed()
verify.verify()
