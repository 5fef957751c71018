"""Files that depend on inventory data alone, and what no file may hold."""

from dataclasses import replace
from functools import partial

import pytest

from lockstep.core.errors import InventoryError, LockstepError, UnitError
from lockstep.files.systemd_quoting import assignment, free_text, quoted_argument, quoted_path
from lockstep.inventory.host import HostPlan
from lockstep.inventory.settings import Proxy, Settings, Sources
from lockstep.lock.pins import Pins
from lockstep.system.base_files import absent_files, host_files, tools_environment
from lockstep.units.all_files import deployed_files

BARE = Settings(name="spark", models={})
PROXY = Proxy(http="http://me:word@proxy.example:3128")
INDEX = "http://me:pa%24$s@index.example:3141/simple/"
SOURCES = Sources(apt=("deb http://packages.example noble main",), python_index=INDEX)
EVERYTHING = replace(BARE, proxy=PROXY, sources=SOURCES, sysctls={"vm.swappiness": "10"})


def test_what_the_data_no_longer_asks_for_is_named_for_removal() -> None:
    conditional = {
        "/etc/apt/sources.list.d/lockstep.list",
        "/etc/apt/apt.conf.d/60lockstep-proxy",
        "/etc/apt/auth.conf.d/60lockstep.conf",
        "/etc/lockstep/proxy.env",
        "/etc/lockstep/tools.env",
        "/etc/systemd/system/docker.service.d/60-lockstep-proxy.conf",
        "/etc/sysctl.d/60-lockstep.conf",
    }
    assert set(absent_files(BARE)) == conditional
    assert absent_files(EVERYTHING) == ()
    assert conditional <= {file.path for file in host_files(EVERYTHING)}
    assert not conditional & {file.path for file in host_files(BARE)}


def test_the_index_of_our_tools_is_in_a_private_file_and_no_argument() -> None:
    (file,) = (file for file in host_files(EVERYTHING) if file.path.endswith("/tools.env"))
    assert file.mode == "0600"
    assert tools_environment(EVERYTHING) == file.path
    values = dict(line.split("=", 1) for line in file.text.splitlines() if "=" in line)
    index = values["PIP_INDEX_URL"]
    assert values["UV_DEFAULT_INDEX"] == index and "me:pa%24" in index and "index.example" in index
    assert "index.example" in values["PIP_TRUSTED_HOST"]
    assert "index.example:3141" in values["UV_INSECURE_HOST"]
    assert "me:" not in values["UV_INSECURE_HOST"]
    assert values.keys() >= PROXY.environment().keys()
    assert tools_environment(BARE) is None
    assert tools_environment(replace(BARE, proxy=PROXY)) == "/etc/lockstep/proxy.env"


def test_a_value_that_would_break_its_file_is_refused() -> None:
    for change in (
        {"proxy": Proxy(http="http://x\nSECRET=1")},
        {"sources": Sources(apt=("deb x\ndeb y",))},
        {"sources": Sources(python_index="http://x\nSECRET=1")},
        {"sysctls": {"vm.swappiness": "1\nkernel.x = 2"}},
    ):
        with pytest.raises(InventoryError, match="must be one line") as error:
            host_files(replace(BARE, **change))
        assert "SECRET" not in str(error.value)


def test_open_webui_without_a_pin_is_refused_by_name() -> None:
    with pytest.raises(LockstepError, match="open-webui"):
        deployed_files(HostPlan("spark", BARE, ()), Pins(), engine_id="")


@pytest.mark.parametrize("value", ["a\nb", "a\0b", "a\x7fb"])
def test_a_control_character_never_gets_into_a_unit(value: str) -> None:
    for quote in (quoted_argument, free_text, partial(assignment, "NAME")):
        with pytest.raises(UnitError, match="control characters"):
            quote(value)


def test_a_word_is_quoted_for_systemd() -> None:
    words = ["--port", "", '{"k": 3}', "it's", "50%", "$HOME", "a\\b", ";"]
    quoted_words = ["--port", "''", "'{\"k\": 3}'", '"it\'s"', "50%%", "$$HOME", r"'a\\b'", "';'"]
    assert list(map(quoted_argument, words)) == quoted_words


def test_free_text_and_paths_keep_their_percent_signs() -> None:
    assert free_text("50% of $HOME, it's") == "50%% of $HOME, it's"
    assert quoted_path("/mnt/my disk/50%") == "'/mnt/my disk/50%%'"
    with pytest.raises(UnitError, match="backslash"):
        free_text("goes on \\")
