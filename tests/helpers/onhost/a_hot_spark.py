"""A host with one hot model, whose engine's metrics the test writes."""

from pathlib import Path

import pytest
from a_model_host import UP, ModelHost

from lockstep.onhost.core import config
from lockstep.onhost.operator import status

UNIT = "vllm-qwen36.service"


class HotSpark(ModelHost):
    """A host on which qwen is hot; `more` are keys of its model."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, **more: object) -> None:
        super().__init__(folder, patch, {"qwen": {"unit": UNIT, **more}})
        self.model = self.models["qwen"]
        self.runs(pid=7)

    def runs(self, pid: int) -> None:
        """Make the process of this number the engine."""
        self.systemd.unit(UNIT, **UP, MainPID=str(pid))

    def count(self, running: float, tokens=5.0, waiting=0.0, answers=0.0) -> None:
        """Set the counters of the engine, vLLM's."""
        label = '{engine="0",model_name="q"}'
        self.engine.metrics = (
            f"vllm:num_requests_running{label} {running}\n"
            f"vllm:num_requests_waiting{label} {waiting}\n"
            f"vllm:request_success_total{label} {answers}\n"
            f"vllm:generation_tokens_total{label} {tokens}\n"
            f"vllm:generation_tokens_created{label} 1.7e+09\n"
        )

    def status_text(self) -> str:
        """The output of `switch.sh status`."""
        gathered_status = status.query_status(config.load_host(self.paths.models), self.paths)
        return " ".join(line.strip() for line in status.status_lines(gathered_status, 60))
