"""A deployed host in a browser: the gateway's page, and Open WebUI's stand-in behind it."""

import pytest
from browser import browser
from playwright.sync_api import expect
from stack import INVENTORY, a_key, end_key
from webui import PORT, network, signed_in, tunnel

GATEWAY = 8090
SWITCH_LIMIT_S = 400


@pytest.fixture(scope="module")
def host(stack, first):
    """spark1 with qwen hot, whose pages are at ports of the control machine."""
    answer = stack.spark1.switch("qwen")
    assert answer.code == 0, answer.text
    with tunnel(stack.spark1, PORT), tunnel(stack.spark1, GATEWAY):
        yield stack.spark1
    assert stack.spark1.switch("none").code == 0


def test_the_list_has_every_model_and_a_cold_one_says_what_is_hot(host):
    assert host.switch("qwen").code == 0
    with signed_in(host) as somebody:
        assert {"qwen", "mistral", "tiny", "auto"} <= set(somebody.models())
        assert somebody.chosen_model == "auto"
        somebody.say("Count from 1 to 12")
        somebody.reads("1 2 3 4 5 6 7 8 9 10 11 12")
        somebody.new_chat("mistral")
        somebody.say("Count from 1 to 12")
        somebody.reads("mistral is cold")
        somebody.reads("qwen is hot")
    assert host.status()["hot"] == "qwen"


def test_a_cold_model_of_the_list_is_switched_to_where_the_gateway_may(host):
    file = "/etc/lockstep/gateway.json"
    allow_edit = 's/"swap_on_request": false/"swap_on_request": true/'
    at_once = 's/"least_hot_s": [0-9]*/"least_hot_s": 0/'
    host.root(f"cp -a {file} /run/; sed -i '{allow_edit}; {at_once}' {file}")
    host.root("systemctl restart lockstep-gateway")
    try:
        with signed_in(host) as somebody:
            somebody.new_chat("mistral")
            somebody.say("Count from 1 to 12")
            somebody.reads("1 2 3 4 5 6 7 8 9 10 11 12", SWITCH_LIMIT_S)
        assert host.status()["hot"] == "mistral"
    finally:
        host.root(f"mv /run/gateway.json {file}; systemctl restart lockstep-gateway")


def test_an_operator_switches_from_the_page(stack, host):
    assert host.switch("mistral").code == 0
    key = a_key(stack, INVENTORY, "olga", "--role", "operate")
    expect.set_options(timeout=SWITCH_LIMIT_S * 1000)
    with browser(network(host)) as chromium:
        page = chromium.page(f"http://127.0.0.1:{GATEWAY}/", 390)
        page.get_by_role("button", name="Use a key").click()
        page.get_by_role("dialog").get_by_label("Key").fill(key)
        page.get_by_role("button", name="Use", exact=True).click()
        page.get_by_role("button", name="Switch to qwen", exact=True).click()
        sure = page.get_by_role("dialog", name="Switch to qwen?")
        sure.get_by_role("button", name="Switch").click()
        running = page.get_by_role("region", name="Switch", exact=True)
        expect(running.locator("[aria-current=step]")).to_be_visible()
        expect(running).to_contain_text("qwen is hot, started in")
        expect(page.get_by_role("region", name="Running model")).to_contain_text("qwen")
    assert host.status()["hot"] == "qwen"
    end_key(stack, INVENTORY, "olga")
