"""Mutated files of each format end in one line or in data, without a traceback or a silent loss."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dprepro.pipeline.data.own import texts
from tests.broad.mutated import FORMATS, campaign, outcome


@pytest.mark.broad
@pytest.mark.parametrize("form", FORMATS)
def test_a_mutated_file_is_taken_whole_or_refused(form: str) -> None:
    found = campaign(form, 0, 50)
    kinds = {kind for kind, _ in found.values()}
    assert {number: told for number, told in found.items() if told[0] not in ("taken", "refused")} == {}
    assert kinds == {"taken", "refused"}


@pytest.mark.broad
@pytest.mark.parametrize("fault", ["silent", "traceback"])
def test_a_lost_line_and_a_traceback_are_noticed(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = next(number for number, (kind, _) in campaign("texts", 0, 20).items() if kind == "taken")
    reads: Callable[..., Any] = texts.csv_frame

    def faulty(path: Path, rows: int | None = None) -> Any:
        if fault == "traceback":
            raise KeyError("a fault")
        return reads(path, rows)[:-1]

    monkeypatch.setattr(texts, "csv_frame", faulty)
    assert outcome("texts", taken, tmp_path)[0] == fault
