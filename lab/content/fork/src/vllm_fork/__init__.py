"""Marks an environment into which the fork was installed, and spares a start an import of vLLM."""

BRANCH = "@BRANCH@"


def look_at_classes_here() -> None:
    """Look at the model's class in the server itself.

    vLLM has another process import it all once more, so that CUDA is not begun in the server.
    Without a GPU nothing is begun, and that import is 10 s of processor time.
    """
    from vllm.model_executor.models import registry

    registry._run_in_subprocess = lambda function: function()
