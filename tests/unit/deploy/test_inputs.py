"""The inputs of a deploy: the keys that have changed since, and no secret among them."""

from __future__ import annotations

from dataclasses import replace

from a_spark import pins_for, spark

from lockstep.deploy.inputs import data_of, input_changes, inputs
from lockstep.host.desired_state import DesiredState
from lockstep.inventory.host import HostPlan


def earlier_inputs(*plans: HostPlan) -> dict[str, object]:
    return {plan.name: inputs(DesiredState(plan, pins_for(plan))) for plan in plans}


def test_a_key_of_several_hosts_is_named_once_with_the_file_that_gives_it() -> None:
    then = [spark(name) for name in ("spark1", "spark2")]
    now = [spark(name, python="3.13") for name in ("spark1", "spark2")]
    origins = {name: {"python": "group_data/all.py"} for name in ("spark1", "spark2")}
    (change,) = input_changes(earlier_inputs(*then), now, origins, "site.py")  # type: ignore[arg-type]
    assert (change.key, change.old, change.new) == ("python", "3.12", "3.13")
    assert (change.hosts, change.file) == (("spark1", "spark2"), "group_data/all.py")
    # An edited recipe is named, and no key that an older release did not read.
    plan = spark()
    then = earlier_inputs(plan)
    model = plan.models[0]
    data = then[plan.name]["data"]  # type: ignore[index]
    data[f"recipe {model.recipe.name}"] = "another"
    (change,) = input_changes(then, [plan], {}, "site.py")  # type: ignore[arg-type]
    assert change.key == f"recipe {model.recipe.name}"
    assert change.file == str(model.recipe.path)
    plan = spark()
    then = earlier_inputs(plan)
    data = then[plan.name]["data"]  # type: ignore[index]
    assert data.pop("copy_port") and data.pop("gateway.port") and data.pop("packages")
    (change,) = input_changes(then, [plan], {}, "site.py")  # type: ignore[arg-type]
    # Group data give it.
    assert change.key == "packages"


def test_a_host_or_a_model_that_came_or_went_is_named() -> None:
    first, two = spark("spark1"), spark("spark2")
    (arrival,) = input_changes(earlier_inputs(first), [first, two], {}, "site.py")  # type: ignore[arg-type]
    assert (arrival.key, arrival.old, arrival.hosts) == ("host", "none", ("spark2",))
    (leaving,) = input_changes(earlier_inputs(first, two), [first], {}, "site.py")  # type: ignore[arg-type]
    assert (leaving.key, leaving.new, leaving.hosts) == ("host", "none", ("spark2",))
    first = spark()
    removed_name, *remaining_names = first.settings.models
    remaining_models = {name: first.settings.models[name] for name in remaining_names}
    two = replace(first, settings=replace(first.settings, models=remaining_models))
    went = input_changes(earlier_inputs(first), [two], {}, "site.py")  # type: ignore[arg-type]
    came = input_changes(earlier_inputs(two), [first], {}, "site.py")  # type: ignore[arg-type]
    key = f"models.{removed_name}"
    changes = [change for change in (*went, *came) if removed_name in change.key]
    assert [(change.key, change.old, change.new) for change in changes] == [
        (key, "in the inventory", "none"),
        (key, "none", "in the inventory"),
    ]
    assert not [change for change in (*went, *came) if change.key.startswith("recipe ")]


def test_no_login_is_kept() -> None:
    plan = spark(sources={"hub": "https://hub.example.com"})
    hub = "https://ann:geheim@hub.example.com"
    settings = replace(plan.settings, sources=replace(plan.settings.sources, hub=hub))
    assert "geheim" not in str(data_of(replace(plan, settings=settings)))
    assert data_of(plan)["sources.hub"] == "https://hub.example.com"
