"""What a deploy made its hosts of: which keys have changed since, and no secret among them."""

from __future__ import annotations

from dataclasses import replace

from a_spark import pins_for, spark

from lockstep.deploy.inputs import changed, data_of, inputs
from lockstep.host.intended import Intended
from lockstep.inventory.host import HostPlan


def before(*plans: HostPlan) -> dict[str, object]:
    return {plan.name: inputs(Intended(plan, pins_for(plan))) for plan in plans}


def test_a_key_of_several_hosts_is_named_once_with_the_file_that_gives_it() -> None:
    then = [spark(name) for name in ("spark1", "spark2")]
    now = [spark(name, python="3.13") for name in ("spark1", "spark2")]
    origins = {name: {"python": "group_data/all.py"} for name in ("spark1", "spark2")}
    (change,) = changed(before(*then), now, origins, "site.py")  # type: ignore[arg-type]
    assert (change.key, change.old, change.new) == ("python", "3.12", "3.13")
    assert (change.hosts, change.file) == (("spark1", "spark2"), "group_data/all.py")


def test_a_host_that_came_or_went_is_named() -> None:
    one, two = spark("spark1"), spark("spark2")
    came = changed(before(one), [one, two], {}, "site.py")  # type: ignore[arg-type]
    went = changed(before(one, two), [one], {}, "site.py")  # type: ignore[arg-type]
    assert [(each.key, each.old, each.hosts) for each in came] == [("host", "none", ("spark2",))]
    assert [(each.key, each.new, each.hosts) for each in went] == [("host", "none", ("spark2",))]


def test_a_recipe_that_was_edited_is_named() -> None:
    plan = spark()
    then = before(plan)
    target = plan.targets[0]
    data = then[plan.name]["data"]  # type: ignore[index]
    data[f"recipe {target.recipe.name}"] = "another"
    (change,) = changed(then, [plan], {}, "site.py")  # type: ignore[arg-type]
    assert change.key == f"recipe {target.recipe.name}"
    assert change.file == str(target.recipe.path)


def test_no_login_is_kept() -> None:
    plan = spark(sources={"hub": "https://hub.example.com"})
    hub = "https://ann:geheim@hub.example.com"
    settings = replace(plan.settings, sources=replace(plan.settings.sources, hub=hub))
    assert "geheim" not in str(data_of(replace(plan, settings=settings)))
    assert data_of(plan)["sources.hub"] == "https://hub.example.com"


def test_a_target_that_came_or_went_is_one_key() -> None:
    one = spark()
    gone, *kept = one.settings.targets
    left = {name: one.settings.targets[name] for name in kept}
    two = replace(one, settings=replace(one.settings, targets=left))
    went = changed(before(one), [two], {}, "site.py")  # type: ignore[arg-type]
    came = changed(before(two), [one], {}, "site.py")  # type: ignore[arg-type]
    key = f"targets.{gone}"
    assert [(each.key, each.old, each.new) for each in went if gone in each.key] == [
        (key, "in the inventory", "none")
    ]
    assert [(each.key, each.old, each.new) for each in came if gone in each.key] == [
        (key, "none", "in the inventory")
    ]
    assert not [each for each in (*went, *came) if each.key.startswith("recipe ")]


def test_a_key_that_nobody_gives_and_an_older_release_did_not_read_has_not_changed() -> None:
    plan = spark()
    then = before(plan)
    data = then[plan.name]["data"]  # type: ignore[index]
    assert data.pop("copy_port") and data.pop("gateway.port") and data.pop("packages")
    (change,) = changed(then, [plan], {}, "site.py")  # type: ignore[arg-type]
    # Group data give it.
    assert change.key == "packages"
