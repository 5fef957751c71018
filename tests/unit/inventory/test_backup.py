"""Keys of backups."""

from __future__ import annotations

from typing import Any

import pytest
from a_spark import spark

from lockstep.core.errors import InventoryError


@pytest.mark.parametrize("to", ["/mnt/backup", "sftp:anna@nas.local:/volume1/backup"])
def test_a_folder_and_sftp_are_places(to: str) -> None:
    assert spark(backup={"enabled": True, "to": (to,)}).settings.backup.to == (to,)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"to": ("s3:x",)}, "is no place for a backup"),
        ({"to": ("/a/../b",)}, "is no place for a backup"),
        ({"to": ("sftp:-oProxyCommand=x@h:/a",)}, "is no place for a backup"),
        ({"keep_daily": 0}, "is no number of backups"),
        ({"hour": 24}, "is no hour"),
        ({"enabled": True, "to": ("peer",), "port": 8090}, "port 8090 is used twice"),
        ({"password": "open"}, "password"),
        ({"to": ("peer",)}, r"backup\.to has no effect without backup\.enabled; found 'peer'"),
        ({"enabled": False, "to": ("/a", "/b")}, "found '/a', '/b'. Set backup.enabled to True"),
    ],
)
def test_what_is_none_is_refused(data: dict[str, Any], message: str) -> None:
    with pytest.raises(InventoryError, match=message):
        spark(backup=data)
