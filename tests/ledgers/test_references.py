"""Published numbers of others come out, and each that doesn't has an explanation."""

from math import isclose
from pathlib import Path

import pytest

from dprepro.pipeline.ledgers.references import PAGE, computed, page, read_references

ROOT = Path(__file__).parents[2]
ALL = read_references(ROOT)
COMPUTED = {key: reference for key, reference in ALL.references.items() if reference.by}


def test_there_are_enough_and_every_source_has_one() -> None:
    assert len(ALL.references) >= 40
    assert len(COMPUTED) >= 25
    assert {reference.source for reference in ALL.references.values()} == ALL.sources.keys()


@pytest.mark.parametrize("key", COMPUTED)
def test_a_published_number_comes_out(key: str) -> None:
    """It is near the printed one; where it should be below, it isn't above."""
    reference = COMPUTED[key]
    ours = computed(reference)
    assert isclose(ours, reference.printed, rel_tol=reference.within or 0)
    assert reference.relation != "below" or ours <= reference.printed


def test_what_differs_by_more_than_its_digits_has_an_explanation() -> None:
    for key, reference in COMPUTED.items():
        if abs(computed(reference) / reference.printed - 1) > 0.005:
            assert reference.why, key


def test_the_page_is_what_is_computed() -> None:
    assert (ROOT / PAGE).read_text(encoding="utf-8") == page(ALL, ROOT)
