"""Mutated files of each format end in one line or in data, without a traceback or a silent loss."""

import pytest

from tests.broad.mutated import FORMATS, campaign


@pytest.mark.broad
@pytest.mark.parametrize("form", FORMATS)
def test_a_mutated_file_is_taken_whole_or_refused(form: str) -> None:
    found = campaign(form, 0, 50)
    kinds = {kind for kind, _ in found.values()}
    assert {number: told for number, told in found.items() if told[0] not in ("taken", "refused")} == {}
    assert kinds == {"taken", "refused"}
