"""The closed list of pyinfra's own names, against the pyinfra that is installed."""

from dataclasses import fields
from typing import get_origin, get_type_hints

import pytest
from a_spark import spark
from pyinfra.api.arguments import all_global_arguments
from pyinfra.api.connectors import get_all_connectors

from lockstep.core.errors import InventoryError
from lockstep.inventory import pyinfra_keys
from lockstep.inventory.settings import Settings
from lockstep.inventory.values import AnyPort


def test_they_are_what_pyinfra_reads() -> None:
    read = {name for name, _ in all_global_arguments() if name.startswith("_")}
    for connector in get_all_connectors().values():
        read |= set(getattr(connector, "data_cls", type).__annotations__)
    # Of its connector for tests.
    read = {name for name in read if not name.startswith("fake_")}
    # Read as `host.data.…` by two connectors, which set them.
    assert read | {"docker_image", "chroot_directory"} == pyinfra_keys.KEYS
    assert all(name.startswith(pyinfra_keys.PREFIXES) for name in read)


def test_the_types_of_a_login_are_those_that_pyinfra_states() -> None:
    stated_types = {**get_type_hints(get_all_connectors()["ssh"].data_cls), "ssh_port": AnyPort}
    plain = {key: get_origin(kind) or kind for key, kind in pyinfra_keys.LOGIN.items()}
    assert {**plain, "ssh_port": AnyPort} == stated_types


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("ssh_user", None, "ssh_user must be text"),
        ("ssh_port", "22", "ssh_port must be a whole number"),
        ("ssh_allow_agent", "no", "ssh_allow_agent must be true or false"),
        # What may hold a password is not shown.
        ("ssh_password", 73519, "ssh_password must be text"),
        ("ssh_paramiko_connect_kwargs", "password=73519", "must be a mapping"),
    ],
)
def test_a_login_that_pyinfra_would_stumble_over_is_refused(key: str, value: object, message: str):
    with pytest.raises(InventoryError) as error:
        spark(**{key: value})
    assert error.value.summary.endswith(message)
    assert "73519" not in str(error.value)


def test_none_of_ours_is_one_of_them() -> None:
    assert pyinfra_keys.KEYS.isdisjoint(field.name for field in fields(Settings))


@pytest.mark.parametrize(
    ("key", "right_name"),
    [
        ("ssh_usr", "ssh_user"),
        ("_sduo", "_sudo"),
        # It begins as one of ours and of pyinfra's.
        ("docker_user", "docker_users"),
    ],
)
def test_a_wrong_name_is_refused_with_the_right_one(key: str, right_name: str) -> None:
    with pytest.raises(InventoryError) as error:
        spark(**{key: "x"})
    assert error.value.summary == f"unknown key {key!r}"
    assert error.value.remedy == f"Did you mean {right_name!r}?"


@pytest.mark.parametrize("key", ["local_anything", "_x"])
def test_a_name_near_to_none_is_refused_too(key: str) -> None:
    with pytest.raises(InventoryError, match=f"unknown key '{key}'"):
        spark(**{key: "x"})


@pytest.mark.parametrize(
    ("name", "private"),
    [("__name__", True), ("_models", True), ("_sudo", False), ("_sduo", False), ("ssh_usr", False)],
)
def test_a_file_of_group_data_may_have_names_of_its_own(name: str, private: bool) -> None:
    assert pyinfra_keys.is_private(name) is private
