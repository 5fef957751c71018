"""The offer of a gateway: its address from elsewhere, its models, and the time to wait."""

from pathlib import Path

from an_inventory import ANNA, write_inventory

from group_data.all import models
from lockstep.clients.offer import GatewayOffer, of_host
from lockstep.fleet.hosts import choose


def host_offer(folder, host="spark-1", *, more=None, two=None, model=None) -> GatewayOffer:
    """The offer of a host, with more data of spark-1, of spark-2, or of spark-2's only model."""
    login_data = {"ssh_user": "anna", **ANNA}
    big = {"models": {"big": {**models["qwen"], **(model or {})}}}
    hosts = {
        "spark-1": {**login_data, "fabric_address": "10.0.0.1", **(more or {})},
        "spark-2": {**login_data, "fabric_address": "10.0.0.2", **big, **(two or {})},
    }
    every, [chosen_host] = choose(write_inventory(folder, hosts), [host])
    return of_host(chosen_host, every)


def test_where_it_is_open_that_is_its_address(tmp_path: Path) -> None:
    for gateway, url in (
        ({"bind": "0.0.0.0", "plain": True}, "http://spark-1:8090"),
        ({"bind": "10.0.0.1", "plain": True, "port": 8009}, "http://10.0.0.1:8009"),
        ({"bind": "::", "plain": True}, "http://spark-1:8090"),
        ({"bind": "fd00::1", "plain": True}, "http://[fd00::1]:8090"),
        ({"bind": "0.0.0.0", "tls": "own"}, "https://spark-1:8443"),
        ({"bind": "10.0.0.1", "tls": "own", "tls_port": 9443}, "https://spark-1:9443"),
    ):
        offer = host_offer(tmp_path, more={"gateway": gateway})
        assert (offer.url, offer.has_key, offer.tunnel) == (url, True, "")
        assert offer.authority is ("tls" in gateway)


def test_a_tunnel_is_by_the_port_of_ssh_and_loopback_may_ask_for_keys(tmp_path: Path) -> None:
    offer = host_offer(tmp_path, more={"ssh_port": 2222})
    assert offer.tunnel == "ssh -p 2222 anna@spark-1 -N -L 8090:127.0.0.1:8090"
    more = {"gateway": {"local_keys": True}, "webui": {"enabled": False}}
    assert host_offer(tmp_path, more=more).has_key


def test_context_is_the_least_of_recipe_and_fallback_and_a_wait_the_longest(tmp_path: Path) -> None:
    offer = host_offer(tmp_path)
    offered_models = {model.name: model for model in offer.models}
    assert list(offered_models) == ["auto", "qwen", "mistral", "mistral-vllm"]
    assert (offered_models["qwen"].context, offered_models["qwen"].output) == (262144, 32768)
    assert (offered_models["mistral"].context, offered_models["mistral"].output) == (32768, 8192)
    # A fallback that does not see is the exception.
    assert offered_models["qwen"].images and offered_models["auto"].images
    # Another model may come first.
    names = [model.name for model in offer.preferring("mistral").chat]
    assert names == ["mistral", "auto", "qwen", "mistral-vllm"]
    assert host_offer(tmp_path).wait_s == 1800 + 1800
    slow = host_offer(tmp_path, "spark-2", model={"start_timeout_s": 7200})
    assert slow.wait_s == 7200 + 1800


def test_auto_has_the_least_context_that_an_agent_can_use(tmp_path: Path) -> None:
    """`mistral` has 32768, and is no model for an agent."""
    for big, least in ((None, 262144), (131072, 131072), (65536, 262144), (16384, 262144)):
        model_data = {"overrides": {"max_model_len": big}, "fallback": None} if big else {}
        more = {"gateway": {"peers": ("spark-2",)}}
        two = {"gateway": {"peers": ("spark-1",)}}
        offer = host_offer(tmp_path, more=more, two=two, model=model_data)
        assert offer.models[0].context == least
        # Models of peers are offered, too.
        assert offer.models[-1].name == "big"


def test_aliases_and_overrides_count(tmp_path: Path) -> None:
    model = {"fallback": None, "aliases": ("gpt-x",), "overrides": {"max_model_len": 65536}}
    offer = host_offer(tmp_path, "spark-2", model=model)
    rows = [(model.name, model.model_name, model.context) for model in offer.models]
    # Without a model for agents `auto` has the least of all.
    assert rows == [("auto", "auto", 65536), ("big", "big", 65536), ("gpt-x", "big", 65536)]


def test_a_model_of_several_hosts_has_their_smallest_context(tmp_path: Path) -> None:
    smaller = {**models["qwen"], "fallback": None, "overrides": {"max_model_len": 65536}}
    two = {"gateway": {"peers": ("spark-1",)}, "models": {"qwen": smaller}}
    offer = host_offer(tmp_path, more={"gateway": {"peers": ("spark-2",)}}, two=two)
    assert {model.name: model.context for model in offer.models}["qwen"] == 65536
