"""The licence policy: OSI-approved by SPDX id, unknown is not accepted."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.checkpoints.licences import canonical, judge, osi_approved
from lockstep.core.errors import CatalogueError

CATALOGUE = Path(__file__).parents[3] / "catalogue"
ACCEPTED = osi_approved(CATALOGUE)


def test_judgements() -> None:
    for licence, judgement in (
        ("apache-2.0", "accepted"),
        ("MIT", "accepted"),
        ("MIT AND CC-BY-NC-4.0", "refused"),
        ("CC-BY-NC-4.0", "refused"),
        ("LicenseRef-NVIDIA-Nemotron-Open-Model-License", "refused"),
        ("other", "unknown"),
        (None, "unknown"),
    ):
        assert judge(licence, ACCEPTED) == judgement
        # Any is accepted by its name.
        assert not licence or judge(licence, ACCEPTED | {licence}) == "accepted"


def test_the_list_holds_official_ids_only(tmp_path: Path) -> None:
    (tmp_path / "licences.yaml").write_text("osi_approved: {ids: [apache-2.0]}")
    with pytest.raises(CatalogueError, match="not an SPDX id"):
        osi_approved(tmp_path)


@given(st.one_of(st.text(), st.from_regex(r"[()A-Za-z0-9. +-]{0,30}", fullmatch=True)))
def test_no_text_breaks_the_judgement(text: str) -> None:
    assert judge(text, ACCEPTED) in ("accepted", "refused", "unknown")
    canonical(text)
