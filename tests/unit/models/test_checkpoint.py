"""Checkpoint facts come from the small files, through a hub or a folder, never from weights."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from lockstep.cli.main import main
from lockstep.models import hub
from lockstep.models.checkpoint import CheckpointError

COMMIT = "e347d86b2a6cba4b54ea6f87ca247f60439eed07"
CONFIG = {
    "architectures": ["Qwen3_5MoeForConditionalGeneration"],
    "vision_config": {"depth": 27},
    "quantization_config": {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"},
    "text_config": {
        "dtype": "bfloat16",
        "num_hidden_layers": 40,
        "full_attention_interval": 4,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "linear_num_value_heads": 32,
        "linear_value_head_dim": 128,
        "linear_key_head_dim": 128,
        "max_position_embeddings": 262144,
    },
}
BLIND = ["model.layers.0.mlp.experts.0.up_proj.weight", "mtp.fc.weight", "mtp.layers.0.norm.weight"]
SEEING = [*BLIND, "model.visual.patch_embed.proj.weight", "model.visual.blocks.0.attn.qkv.weight"]


def files(tensors: list[str]) -> dict[str, bytes]:
    index = {"weight_map": dict.fromkeys(tensors, "model-00001.safetensors")}
    return {
        "config.json": json.dumps(CONFIG).encode(),
        "model.safetensors.index.json": json.dumps(index).encode(),
        "model-00001.safetensors": b"w" * 1000,
        "model-00002.safetensors": b"w" * 500,
        "README.md": b"---\nlicense: apache-2.0\n---\n# card\n",
    }


def folder(path: Path, content: dict[str, bytes]) -> str:
    for name, data in content.items():
        (path / name).write_bytes(data)
    return str(path)


class Hub(BaseHTTPRequestHandler):
    """The part of the hub's protocol that `model inspect` speaks."""

    content: ClassVar[dict[str, bytes]] = {}
    read: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path == "/api/models/org/gated/revision/main":
            self.answer(401, b"")
        elif path.startswith("/api/models/org/model/revision/"):
            siblings = [{"rfilename": n, "size": len(d)} for n, d in self.content.items()]
            card = {"license": "other", "license_name": "nvidia-open"}
            facts = {"sha": COMMIT, "siblings": siblings, "cardData": card}
            self.answer(200, json.dumps(facts).encode())
        elif path.startswith(f"/org/model/resolve/{COMMIT}/"):
            name = path.rsplit("/", 1)[1]
            self.read.append(name)
            wanted = self.headers.get("Range")
            data = self.content[name]
            if wanted:
                end = int(wanted.rsplit("-", 1)[1]) + 1
                self.answer(206, data[:end])
            else:
                self.answer(200, data)
        else:
            self.answer(404, b"")

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Silence."""


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    Hub.content, Hub.read = files(SEEING), []
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_vision_config_without_vision_tensors_does_not_see(tmp_path: Path) -> None:
    found = hub.inspect(folder(tmp_path, files(BLIND)))
    assert (found.vision_config, found.vision_tensors, found.sees) == (True, 0, False)
    assert found.mtp_tensors == 2
    assert found.weight_bytes == 1500
    assert found.quantisation == "compressed-tensors nvfp4-pack-quantized"
    assert found.licence == "apache-2.0"
    assert found.missing == ("tokenizer.json",)
    assert found.architecture is not None
    assert found.architecture.kv_bytes_per_token() == 20480


def test_a_hub_is_asked_for_small_files_only(endpoint: str) -> None:
    found = hub.inspect("org/model", "main", endpoint=endpoint)
    assert (found.revision, found.sees, found.vision_tensors) == (COMMIT, True, 2)
    assert found.licence == "LicenseRef-nvidia-open"
    assert found.weight_bytes == 1500
    assert set(Hub.read) == {"config.json", "model.safetensors.index.json"}


def test_a_single_weight_file_is_asked_for_its_header_only(endpoint: str) -> None:
    header = json.dumps({"__metadata__": {}, "mtp.fc.weight": {}, "layer.weight": {}}).encode()
    weights = len(header).to_bytes(8, "little") + header + b"w" * 5000
    Hub.content = {"config.json": b"{}", "model.safetensors": weights}
    found = hub.inspect("org/model", endpoint=endpoint)
    assert (found.tensors, found.mtp_tensors, found.vision_tensors) == (2, 1, 0)
    assert found.architecture_unknown is not None


def test_the_files_that_the_mistral_repository_lacks_are_named(tmp_path: Path) -> None:
    index = {"weight_map": {"vision_encoder.ln_pre.weight": "a", "layers.0.attention.wq": "a"}}
    content = {
        "params.json": b'{"dim": 4096}',
        "consolidated.safetensors.index.json": json.dumps(index).encode(),
    }
    found = hub.inspect(folder(tmp_path, content))
    assert found.missing == ("config.json", "tokenizer.json")
    assert found.sees is True


@pytest.mark.parametrize(
    ("model", "part"), [("org/gated", "gated"), ("org/none", "HTTP 404")], ids=["gated", "absent"]
)
def test_what_cannot_be_read_is_one_sentence(endpoint: str, model: str, part: str) -> None:
    with pytest.raises(CheckpointError, match=part):
        hub.inspect(model, endpoint=endpoint)


def test_a_hub_that_is_not_there_names_the_remedy() -> None:
    with pytest.raises(CheckpointError, match="HF_ENDPOINT"):
        hub.inspect("org/model", endpoint="http://127.0.0.1:9")


def test_broken_json_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json is not JSON"):
        hub.inspect(folder(tmp_path, {"config.json": b"{"}))


def test_the_command_says_that_a_vision_config_is_boilerplate(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["model", "inspect", folder(tmp_path, files(BLIND))])
    assert result.exit_code == 0, result.output
    lines = dict(line.split(maxsplit=1) for line in result.output.splitlines())
    assert lines["vision"] == "no (0 of 3 tensors); the configuration's vision part is boilerplate"
    assert lines["quantisation"] == "compressed-tensors nvfp4-pack-quantized"


def test_the_command_ends_with_2_and_no_traceback() -> None:
    result = CliRunner().invoke(
        main, ["model", "inspect", "org/x", "--endpoint", "http://127.0.0.1:9"]
    )
    assert result.exit_code == 2
    assert "Traceback" not in result.output
