"""The gateway's page of a deployed host in a browser, through ssh as its operator opens it."""

import subprocess

from browser import browser
from playwright.sync_api import expect
from stack import INVENTORY, a_key, end_key

from lab.host import connection
from lab.host.network import NAMESPACES

PORT = 8090
SWITCH_LIMIT_S = 400


def test_an_operator_switches_from_the_page(stack, lab_host):
    assert lab_host.switch("mistral").code == 0
    key = a_key(stack, INVENTORY, "olga", "--role", "operate")
    expect.set_options(timeout=SWITCH_LIMIT_S * 1000)
    description = connection.load(stack.name)
    network = NAMESPACES / description.namespace
    forward = ["-o", "ExitOnForwardFailure=yes", "-L", f"127.0.0.1:{PORT}:127.0.0.1:{PORT}"]
    ssh, *words = connection.ssh_command(description, lab_host.name, ["echo open; cat"])
    with (
        subprocess.Popen(
            ["nsenter", f"--net={network}", ssh, *forward, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as tunnel,
        browser(network) as chromium,
    ):
        assert tunnel.stdout.readline() == "open\n"
        page = chromium.page(f"http://127.0.0.1:{PORT}/", 390)
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
    assert lab_host.status()["hot"] == "qwen"
    end_key(stack, INVENTORY, "olga")
    assert lab_host.switch("none").code == 0
