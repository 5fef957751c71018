"""models.json is the host's own dataclass: what is written is what its programs read."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from example import HOSTS, bound_models, pins
from example import rendered_files as of_example
from pair import rank_files as of_pair

from lockstep.inventory.settings import MemoryMinimum
from lockstep.onhost.core import config
from lockstep.onhost.core.schema import values_of
from lockstep.units.model_variants import variants
from lockstep.units.models_json import MODELS, host_configuration, models_file

TEXTS = [*(of_example(host)[MODELS].text for host in HOSTS), of_pair(1)[MODELS].text]


@pytest.mark.parametrize("text", TEXTS)
def test_keys_are_what_differs_from_defaults_and_unknown_ones_are_left_out(tmp_path, text) -> None:
    path = tmp_path / "models.json"
    odd = json.loads(text)
    next(iter(odd["models"].values()))["unknown_key"] = 5
    for written_text in (text, json.dumps(odd)):
        path.write_text(written_text)
        assert values_of(config.load_host(path)) == json.loads(text)


def test_a_host_reads_what_was_written_for_it(tmp_path: Path) -> None:
    settings = HOSTS["spark"]
    models = bound_models(settings)
    host_variants = variants(settings, models, pins(settings, models), engine_id="")
    path = tmp_path / "models.json"
    path.write_text(models_file(settings, host_variants).text)
    host = config.load_host(path)
    assert host == host_configuration(settings, host_variants)
    # SGLang's scheduler ends when it is asked for log-probabilities while it drafts.
    assert [name for name, model in host.models.items() if not model.logprobs] == ["mistral"]
    assert all(model.tools and model.sense == "answers" for model in host.models.values())


def test_a_file_of_an_earlier_deploy_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    old = json.loads(TEXTS[0])
    for model in old["models"].values():
        del model["weights"]
        model["gone"] = 1
    path = tmp_path / "models.json"
    path.write_text(json.dumps(old))
    assert config.load_host(path).model("qwen").weights == ()


@pytest.mark.parametrize(
    ("expected_gib", "share", "settings", "minimums"),
    [
        (115.0, 0.5, {}, (8.0, 4.0)),
        # Half of what the least of Sparks has at rest, 119.56 - 5.7 - 1.2 GiB, less what it holds.
        (115.0, 0.8, {}, (6.7, 4.0)),
        # Not below what earlyoom would end it at.
        (115.0, 0.85, {}, (4.0, 4.0)),
        (115.0, 0.85, {"loading_gib": 16.0, "serving_gib": 0.0}, (16.0, 0.0)),
        # A Spark of 64 GB has its own.
        (58.0, 0.56, {}, (7.9, 4.0)),
    ],
)
def test_a_default_minimum_is_at_most_half_of_what_the_fit_leaves(
    expected_gib, share, settings, minimums
) -> None:
    spark = HOSTS["spark"]
    host = replace(spark, expected=replace(spark.expected, memory_gib=expected_gib))
    qwen = next(item for item in bound_models(host) if item.name == "qwen")
    minimum, overrides = MemoryMinimum(**settings), {"gpu_memory_utilization": share}
    data = replace(qwen.data, memory_minimum=minimum, overrides=overrides)
    models = (replace(qwen, data=data),)
    [variant, *_] = variants(host, models, pins(host, models), engine_id="")
    model = host_configuration(host, [variant]).models["qwen"]
    found_minimums = (model.minimum_loading_gib, model.minimum_serving_gib)
    assert found_minimums == pytest.approx(minimums, abs=0.05)
    # The gate counts with the minimum, as the plan does.
    assert model.memory_need == variant.served_model.memory_need
    assert model.memory_need.minimum_gib == max(found_minimums)
