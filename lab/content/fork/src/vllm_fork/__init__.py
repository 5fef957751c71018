"""Marks an environment into which the fork was installed, and has vLLM imported once a start."""

import os

BRANCH = "@BRANCH@"


def share_imports() -> None:
    """Make an engine's processes forks of its server, as they are on a GPU.

    The CPU build starts each of them anew, and one more that looks at the model's class. On a
    processor that is all that a start takes: the import of vLLM, 10 s of processor time.
    """
    from vllm.model_executor.models import registry
    from vllm.platforms.cpu import CpuPlatform

    update_as_shipped = CpuPlatform.check_and_update_config

    def check_and_update_config(config: object) -> None:
        update_as_shipped(config)
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"

    CpuPlatform.check_and_update_config = staticmethod(check_and_update_config)
    registry._run_in_subprocess = lambda function: function()
