"""The specifications of builds and downloads for a host, what it lacks, and secrets brought to it.

How the hub's token comes there, unseen: tests/operations/test_given_secrets.py.
"""

import copy
import hashlib
import json
from fnmatch import fnmatch
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

from a_spark import COMMIT, pins_for, spark, wheel

from lockstep.deploy.questions import questions
from lockstep.host.desired_state import DesiredState
from lockstep.host.specs import engine_check_hash, engine_spec, missing_engine_parts, weights_spec
from lockstep.inventory.bound_models import bind
from lockstep.inventory.host import HostPlan
from lockstep.inventory.settings import ModelData, Settings
from lockstep.lock.pins import CheckpointPin, FilePin, Pins
from lockstep.onhost.weights import weights_spec as on_host
from lockstep.recipes import recipe_file
from lockstep.units.tls_unit import UNIT


def spec_of(**data: object) -> dict[str, Any]:
    plan = spark(**data)
    return engine_spec(plan, pins_for(plan))


SPEC = spec_of()
COMPILED = "vllm-0.19.1.dev1+gbbbbbbbbb.cu130-cp38-abi3-manylinux_2_35_aarch64.whl"


def test_the_fork_is_specified_to_the_last_commit() -> None:
    # The builder on the host reads each of them by its name.
    assert set(SPEC) == {
        *("id", "home", "current", "python", "uv", "tools", "index", "torch_index"),
        *("flashinfer_index", "packages", "built_with", "precompiled", "vllm", "transformers"),
        *("expected", "recipes", "proxy", "engine_cuda", "waive_kernels"),
    }
    assert SPEC["torch_index"] == "https://download.pytorch.org/whl/cu130"
    assert {item["name"]: item["stage"] for item in SPEC["packages"]} == {
        **dict.fromkeys(("torch", "torchvision"), "pytorch"),
        **dict.fromkeys(
            (f"flashinfer-{x}" for x in ("cubin", "jit-cache", "python")), "flashinfer"
        ),
        **dict.fromkeys(("mistral-common", "transformers"), "vllm"),
    }
    assert SPEC["built_with"] == [{**vars(wheel("setuptools", "1.0")), "stage": "vllm"}]
    assert SPEC["expected"] == {item["name"]: item["version"] for item in SPEC["packages"]}
    assert SPEC["precompiled"] == {
        "name": "vllm",
        "version": "0.19.1.dev1+gbbbbbbbbb.cu130",
        "file": COMPILED,
        "sha256": hashlib.sha256(COMPILED.encode()).hexdigest(),
        "size": 1000,
        "url": f"https://wheels.vllm.ai/{40 * 'b'}/{COMPILED.replace('+', '%2B')}",
    }
    assert SPEC["vllm"]["commit"] == COMMIT
    assert SPEC["vllm"]["environment"] == {
        "VLLM_USE_PRECOMPILED": "1",
        # Its own tags would say 0.1.dev.
        "SETUPTOOLS_SCM_PRETEND_VERSION": "0.19.1.dev1+gccccccccc",
    }


def test_inventory_data_choose_the_engine_and_its_sources() -> None:
    # Failing kernels of the engine are waived like any finding.
    assert spec_of(waive=("engine-kernel",))["waive_kernels"]
    release = spec_of(engine={"release": "vllm==0.20.2"})
    assert (release["vllm"], release["transformers"], release["built_with"]) == (None, None, [])
    assert (release["precompiled"], release["expected"]["vllm"]) == (None, "0.20.2")
    # A fork that compiles itself takes no compiled wheel.
    compiling_fork = spec_of(engine={"precompiled": False})
    assert (compiling_fork["precompiled"], compiling_fork["vllm"]["environment"]) == (None, {})
    mirrors = {
        "vllm_wheels": "http://10.0.0.5/wheels/",
        "git": {"https://github.com/": "git://10.0.0.5/"},
    }
    spec = spec_of(sources=mirrors, engine={"transformers": PINNED})
    url = f"http://10.0.0.5/wheels/{40 * 'b'}/vllm-"
    assert spec["precompiled"]["url"].startswith(url)
    assert spec["vllm"]["git"] == "git://10.0.0.5/juliendenize/vllm.git"
    assert spec["transformers"] == {
        "git": "git://10.0.0.5/huggingface/transformers.git",
        "branch": "HEAD",
        "commit": 40 * "d",
    }


def test_the_engine_is_asked_about_its_own_recipes_with_the_files_that_it_will_have() -> None:
    # Of a model of its own, and of the fallback of one whose engine is in an image.
    recipes = SPEC["recipes"]
    assert [recipe["name"] for recipe in recipes] == ["mistral-small-4-119b-nvfp4-vllm-fork"] * 2
    assert all(recipe["argv"][:2] == ["vllm", "serve"] for recipe in recipes)
    model = "models--mistralai--Mistral-Small-4-119B-2603-NVFP4"
    folder = f"/data/models/huggingface/hub/{model}/snapshots/{COMMIT}"
    assert recipes[0]["checkpoint"] == [{"folder": folder, "files": ["model.safetensors"]}]
    # The record of a check counts only for the same question.
    changed_spec = copy.deepcopy(SPEC)
    assert engine_check_hash(SPEC) == engine_check_hash(changed_spec)
    changed_spec["recipes"][0]["argv"].append("--enforce-eager")
    assert engine_check_hash(SPEC) != engine_check_hash(changed_spec)
    assert engine_check_hash(SPEC) != engine_check_hash({**BOTH, "engine_cuda": None})


PINNED = f"transformers @ git+https://github.com/huggingface/transformers.git@{40 * 'd'}"
# A finished environment with a commit of transformers, as the reader sees it.
BOTH = spec_of(engine={"transformers": PINNED})
WHOLE: dict[str, Any] = {
    "environment": {
        "python": "3.12",
        "distributions": {
            **BOTH["expected"],
            "vllm": "0.19.2rc1.dev7+gccccccc",
            "transformers": "5.9.0.dev0",
        },
        "origins": {
            "vllm": {"url": f"file://{BOTH['home']}/vllm", "editable": True},
            "transformers": {"url": f"file://{BOTH['home']}/transformers", "editable": False},
        },
    },
    "commits": {"vllm": COMMIT, "transformers": 40 * "d"},
    "unfinished": False,
}


REMOVED = object()
VLLM, TRANSFORMERS = ["vllm at cccccccccccc"], ["transformers at dddddddddddd"]
DRIFTS = [
    ("environment python", "3.11", {"pytorch": ["Python 3.12 (it has 3.11)"]}),
    # PyPI's torch 2.10 for aarch64, a build without CUDA.
    ("environment distributions torch", "2.10.0+cpu", {"pytorch": ["torch 2.10.0+cu130"]}),
    ("environment distributions mistral-common", "0.9", {"vllm": ["mistral-common 1.0"]}),
    # Another's work in our environment.
    ("environment distributions left-pad", "1.0", {"vllm": ["no left-pad"]}),
    ("commits vllm", 40 * "a", {"vllm": VLLM}),
    ("commits transformers", None, {"vllm": TRANSFORMERS}),
    # Checked out, but the installation was cut off.
    ("environment origins vllm", REMOVED, {"vllm": VLLM}),
    ("unfinished", True, {"pytorch": ["the venv, whose last installation was cut off"]}),
    # A release from the index lies over the fork.
    ("environment origins transformers", None, {"vllm": TRANSFORMERS}),
]


def test_a_whole_environment_lacks_nothing_and_each_kind_of_drift_is_seen() -> None:
    assert missing_engine_parts(BOTH, WHOLE) == {}
    for path, value, missing in DRIFTS:
        state = copy.deepcopy(WHOLE)
        *folders, key = path.split()
        place = reduce(getitem, folders, state)
        place[key] = value
        if value is REMOVED:
            del place[key]
        assert missing_engine_parts(BOTH, state) == missing


FILES = tuple(FilePin(name, 5, sha256=64 * "e") for name in ("config.json", "big.safetensors"))


def repositories(*texts: str) -> list[dict[str, Any]]:
    pins = Pins(
        checkpoints={
            name: CheckpointPin("main", COMMIT, FILES)
            for name in ("org/main", "org/draft", "org/base", "org/other")
        }
    )
    # A model for each recipe.
    catalogue = {
        f"r{number}": recipe_file.parse(text, Path(f"r{number}.yaml"))
        for number, text in enumerate(texts)
    }
    settings = Settings("s", {name: ModelData(name, name) for name in catalogue})
    spec = weights_spec(HostPlan("s", settings, bind(settings, catalogue, {})), pins)
    # The program on the host must be able to read it.
    on_host.parse_spec(json.dumps(spec))
    entries: list[dict[str, Any]] = spec["repositories"]
    return entries


DRAFTED = (
    "model: org/main\ncontainer: a/b\ndefaults: {port: 1}\nlockstep: {draft: {model: org/draft}}\n"
)
BORROWING = (
    "model: org/main\ncontainer: a/b\ndefaults: {port: 2}\n"
    "lockstep: {borrow: [{model: org/base, files: [config.json]}]}\n"
)


def test_a_model_and_its_draft_are_fetched_and_no_borrowed_file_is_lost() -> None:
    assert [item["model"] for item in repositories(DRAFTED)] == ["org/main", "org/draft"]
    assert repositories(DRAFTED)[1] == {
        "model": "org/draft",
        "revision": COMMIT,
        "files": [
            {"path": "config.json", "size": 5, "sha256": 64 * "e"},
            {"path": "big.safetensors", "size": 5, "sha256": 64 * "e"},
        ],
        "refs": ["main"],
    }
    # One that lies on the host is not fetched.
    text = "model: /srv/models/mine\ncontainer: a/b\ndefaults: {port: 1}\n"
    assert repositories(text) == []
    for order in ((DRAFTED, BORROWING), (BORROWING, ANOTHERS_DRAFT)):
        entries = {item["model"]: item for item in repositories(*order)}
        assert len(entries) == 2
        files = [{"path": "config.json", "size": 5, "sha256": 64 * "e"}]
        borrow = {"model": "org/base", "revision": COMMIT, "files": files}
        assert entries["org/main"]["borrow"] == [borrow]


ANOTHERS_DRAFT = (
    "model: org/other\ncontainer: a/b\ndefaults: {port: 3}\nlockstep: {draft: {model: org/main}}\n"
)


def intended_host(**data: object) -> DesiredState:
    plan = spark(**data)
    return DesiredState(plan, pins_for(plan))


def test_caddy_is_given_a_certificate_that_the_deploy_brings() -> None:
    tls = {"certificate": {"file": "~/chain.pem"}, "key": {"command": ("pass", "spark")}}
    host = intended_host(gateway={"bind": "0.0.0.0", "tls": tls})
    chain, key = host.uploaded_secrets
    assert (chain.key, key.key) == ("gateway.tls.certificate", "gateway.tls.key")
    assert key.mode == chain.mode == "0600"
    unit = next(file.text for file in host.all_files if file.path.endswith(UNIT))
    assert f"LoadCredential=certificate:{chain.path}\n" in unit
    assert f"LoadCredential=key:{key.path}\n" in unit


def test_one_that_the_inventory_names_no_more_is_found_and_so_removed() -> None:
    source = {"command": ("false",)}
    hook = {"webhook": "https://example.org/hook", "token": source}
    monitoring = {"enabled": True, "tell": (hook,)}
    tls = {"certificate": source, "key": source}
    with_all = intended_host(gateway={"bind": "0.0.0.0", "tls": tls}, monitoring=monitoring)
    patterns = questions(intended_host())["files.leftovers"]["named"]
    paths = [secret.path for secret in with_all.uploaded_secrets]
    assert len(paths) == 3
    for path in paths:
        assert any(fnmatch(path, pattern) for pattern in patterns), path
