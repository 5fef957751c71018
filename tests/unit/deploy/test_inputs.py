"""The inputs of a deploy: the keys that have changed since, and no secret among them."""

from dataclasses import replace
from typing import Any

from a_spark import pins_for, spark

from lockstep.deploy.inputs import data_of, input_changes, inputs
from lockstep.host.desired_state import DesiredState
from lockstep.inventory.host import HostPlan


def earlier_inputs(*plans: HostPlan) -> dict[str, Any]:
    return {plan.name: inputs(DesiredState(plan, pins_for(plan))) for plan in plans}


def test_a_key_of_several_hosts_is_named_once_with_the_file_that_gives_it() -> None:
    then = [spark(name) for name in ("spark1", "spark2")]
    now = [spark(name, python="3.13") for name in ("spark1", "spark2")]
    origins = {name: {"python": "group_data/all.py"} for name in ("spark1", "spark2")}
    (change,) = input_changes(earlier_inputs(*then), now, origins, "site.py")
    assert (change.key, change.old, change.new) == ("python", "3.12", "3.13")
    assert (change.hosts, change.file) == (("spark1", "spark2"), "group_data/all.py")
    # An edited recipe is named, and no key that an older release did not read.
    plan = spark()
    recipe = plan.models[0].recipe
    then = earlier_inputs(plan)
    data = then[plan.name]["data"]
    data[f"recipe {recipe.name}"] = "another"
    assert data.pop("copy_port") and data.pop("gateway.port") and data.pop("packages")
    # Group data give packages.
    changes = {change.key: change.file for change in input_changes(then, [plan], {}, "site.py")}
    assert changes.keys() == {f"recipe {recipe.name}", "packages"}
    assert changes[f"recipe {recipe.name}"] == str(recipe.path)


def test_a_host_or_a_model_that_came_or_went_is_named() -> None:
    first, two = spark("spark1"), spark("spark2")
    (arrival,) = input_changes(earlier_inputs(first), [first, two], {}, "site.py")
    assert (arrival.key, arrival.old, arrival.hosts) == ("host", "none", ("spark2",))
    (leaving,) = input_changes(earlier_inputs(first, two), [first], {}, "site.py")
    assert (leaving.key, leaving.new, leaving.hosts) == ("host", "none", ("spark2",))
    first = spark()
    remaining_models = {**first.settings.models}
    del remaining_models["qwen"]
    two = replace(first, settings=replace(first.settings, models=remaining_models))
    went = input_changes(earlier_inputs(first), [two], {}, "site.py")
    came = input_changes(earlier_inputs(two), [first], {}, "site.py")
    changes = [(change.key, change.old, change.new) for change in (*went, *came)]
    assert ("models.qwen", "in the inventory", "none") in changes
    assert ("models.qwen", "none", "in the inventory") in changes
    assert not [key for key, *_ in changes if key.startswith("recipe ")]


def test_no_login_is_kept() -> None:
    plan = spark(sources={"hub": "https://hub.example.com"})
    hub = "https://ann:geheim@hub.example.com"
    settings = replace(plan.settings, sources=replace(plan.settings.sources, hub=hub))
    assert "geheim" not in str(data_of(replace(plan, settings=settings)))
    assert data_of(plan)["sources.hub"] == "https://hub.example.com"
