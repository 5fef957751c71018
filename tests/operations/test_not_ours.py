"""A thing that somebody else made is a finding before any change; only `adopt` takes it over."""

from __future__ import annotations

import json
from typing import Any

from a_host import Host, deploying
from pyinfra.context import ctx_host

from lockstep.files.managed_file import HOME
from lockstep.system.accounts import Account
from lockstep.tasks.operations import base_setup, services
from lockstep.tasks.run import remote_commands

UNIT = "/etc/systemd/system/vllm.service"


def test_every_write_says_what_is_adopted() -> None:
    host = Host({}, data={"adopt": (UNIT,)})
    with ctx_host.use(host):
        command = remote_commands.write_files_command({"remove": [UNIT]})
    [text] = command.connector_arguments["_stdin"]
    assert json.loads(text)["asked"] == {"remove": [UNIT], "adopt": [UNIT]}


def accounts(host: Host) -> list[Any]:
    user = Account("lockstep", ("docker",), home=HOME)
    with deploying(host):
        return list(base_setup.create_accounts._inner(groups=[], users=[user]))


def test_an_account_of_somebody_elses_is_put_into_no_group() -> None:
    observed_facts = {
        "account": {"lockstep": "uid 1001"},
        "account home": {"lockstep": "/home/lockstep"},
    }
    facts = {"accounts": observed_facts}
    [refusal] = accounts(Host(facts))
    assert "home /home/lockstep and was not made by Lockstep" in refusal.args[0]
    [command] = accounts(Host(facts, data={"adopt": ["account lockstep"]}))
    assert command.get_raw_value() == "gpasswd --add lockstep docker"
    observed_facts |= {"account home": {"lockstep": HOME}, "right": {"lockstep in docker": "yes"}}
    assert accounts(Host({"accounts": observed_facts})) == []


def test_docker_is_not_restarted_over_the_containers_of_others() -> None:
    state = {"LoadState": "loaded", "ActiveState": "active"}
    old = {"docker.service": {**state, "restart_key": ""}}
    facts: dict[str, Any] = {
        "units": old,
        "deploy_records.foreign_obstacles": {"unit docker.service": "it would end plex"},
    }
    options = {"units": ["docker.service"], "restart_keys": {"docker.service": "0123"}}
    host = Host(facts)
    with deploying(host):
        [refusal] = services.restart_outdated_system_units._inner(**options)
    assert "docker.service is not restarted: it would end plex. Remedy: stop" in refusal.args[0]
    facts["deploy_records.foreign_obstacles"] = {}
    with deploying(host):
        commands = [
            command.get_raw_value()
            for command in services.restart_outdated_system_units._inner(**options)
        ]
    assert commands[-1] == "timeout --verbose 300 systemctl restart docker.service"
