"""The whole stack, top to bottom: `pyinfra inventories/spark.py deploy.py`."""

from pyinfra import config

from tasks import (
    base,
    cluster,
    connection,
    engine_check,
    fabric,
    firewall,
    flashinfer,
    images,
    preflight,
    pytorch,
    services,
    sharing,
    switch,
    verify,
    vllm,
    webui,
    weights,
)

config.REQUIRE_PYINFRA_VERSION = "~=3.10"

connection.tune()

# Each on its own line: pyinfra tells operations apart by the lines that call them.
preflight.preflight()
base.base()
firewall.firewall()
fabric.fabric()
sharing.opened()
pytorch.pytorch()
vllm.vllm()
flashinfer.flashinfer()
engine_check.engine_check()
images.images()
weights.weights()
cluster.cluster()
services.services()
switch.switch()
webui.webui()
sharing.closed()
verify.verify()
