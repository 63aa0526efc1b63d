from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from scipy import stats

from dprepro.pipeline.reporting.verdict import Mean, computed, contrast, mean


def seeds(values: Sequence[float] | dict[int, float]) -> Any:
    """What a row reached, by seed."""
    by_seed = values if isinstance(values, dict) else dict(enumerate(values))
    return SimpleNamespace(by_seed=by_seed, mean=mean([*by_seed.values()]))


def difference(left: Sequence[float], right: Sequence[float]) -> Mean:
    """Of two rows' seeds, which are independent."""
    return contrast([(1, "left", seeds(left)), (-1, "right", seeds(right))])


EXACT: Any = SimpleNamespace(by_seed={0: 3.0}, mean=computed(3.0))
LEFT, RIGHT = (97.0, 97.4, 97.1, 97.3), (96.2, 96.9, 96.1)


def paired() -> Mean:
    """Of one row's cells, whose seeds go together."""
    left, right = {0: 97.0, 1: 97.4, 2: 97.1}, {2: 96.9, 1: 97.3, 0: 96.5, 7: 50.0}
    return contrast([(1, "row", seeds(left)), (-1, "row", seeds(right))])


@pytest.mark.parametrize(
    ("ours", "scipys"),
    [
        (mean(LEFT), stats.ttest_1samp(LEFT, 0)),
        (difference(LEFT, RIGHT), stats.ttest_ind(LEFT, RIGHT, equal_var=False)),
        (paired(), stats.ttest_rel([97.0, 97.4, 97.1], [96.5, 97.3, 96.9])),
    ],
)
def test_intervals_are_scipys(ours: Mean, scipys: Any) -> None:
    assert ours.half_width is not None
    interval = scipys.confidence_interval()
    assert (ours.value - ours.half_width, ours.value + ours.half_width) == pytest.approx(
        (interval.low, interval.high)
    )


def test_rows_are_independent_and_weights_scale_their_spread() -> None:
    weighted = contrast([(1, "one", seeds(LEFT)), (-0.5, "other", seeds(RIGHT))])
    expected = difference(LEFT, [value / 2 for value in RIGHT])
    assert weighted.value == pytest.approx(expected.value)
    assert weighted.half_width == pytest.approx(expected.half_width)


def test_what_is_computed_has_no_spread() -> None:
    assert contrast([(2, "account", EXACT)]) == computed(6.0)
    mixed = contrast([(1, "row", seeds(LEFT)), (-1, "account", EXACT)])
    assert (mixed.half_width, mixed.n) == (pytest.approx(mean(LEFT).half_width), 4)


def test_one_seed_has_no_interval_and_decides_nothing() -> None:
    for single in (mean([97.0]), difference([97.0], RIGHT)):
        assert single.half_width is None


def test_cells_of_a_row_without_a_common_seed_decide_nothing() -> None:
    left, right = seeds({0: 97.0, 1: 97.4}), seeds({2: 96.9, 3: 97.3})
    gap = contrast([(1, "row", left), (-1, "row", right)])
    assert (gap.value, gap.half_width, gap.n) == (pytest.approx(0.1), None, 0)


def test_seeds_that_agree_exactly_have_an_interval_of_no_width() -> None:
    assert difference([1.0, 1.0], [0.5, 0.5]) == Mean(0.5, 0.0, 2)
