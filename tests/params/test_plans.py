"""Plans: which rows may name one, which seeds they get, and what moves a plan's digest."""

import copy
from typing import Any

import pytest

from dprepro.pipeline import params
from dprepro.pipeline.params.schema import SEARCHED_SEED
from tests.not_none import not_none
from tests.params.good import GOOD
from tests.refusal import refusal_of

PLAN = {"seeds": 5, "margin": 1.0, "budget": "ours", "search": "step sizes, on validation data"}


def planned(plan: dict[str, Any] | None = None, row: dict[str, Any] | None = None) -> dict[str, Any]:
    """GOOD, where row `one` is planned, with changes to the plan and to the row."""
    raw = copy.deepcopy(GOOD)
    raw["plans"] = {"davody2020-t5": {**PLAN, **(plan or {})}}
    raw["rows"]["one"] |= {"plan": "davody2020-t5", "seeds": 5, "budget": "own", **(row or {})}
    return raw


def test_planned_seeds_are_none_that_a_row_without_a_plan_or_a_search_has() -> None:
    before = {seed for _, seed in params.parse(GOOD).rows["one"].trainings}
    seeds = [seed for _, seed in params.parse(planned()).rows["one"].trainings]
    assert seeds == [*range(100, 105)] * 2  # at each of two levels
    assert before.isdisjoint(seeds)
    most = params.parse(planned({"seeds": 900}, {"seeds": 900})).rows["one"]
    assert max(seed for _, seed in most.trainings) == SEARCHED_SEED - 1


@pytest.mark.parametrize(
    ("plan", "row", "line"),
    [
        ({"seeds": 2}, {"seeds": 2}, "plans.davody2020-t5.seeds: 2 is not allowed"),
        ({"seeds": 901}, {"seeds": 901}, "plans.davody2020-t5.seeds: 901; allowed: at most 900"),
        ({"margin": "inf"}, {}, "plans.davody2020-t5.margin"),
        ({}, {"plan": "davody2020-t6"}, "rows.one.plan: no such entry 'davody2020-t6'; allowed: davody2020"),
        ({}, {"table": "t7"}, "rows.one.plan: 'davody2020-t5'; allowed: 'davody2020-t7', its paper and"),
        ({}, {"seeds": 6}, "rows.one.seeds: 6; allowed: 5 at each level, as planned"),
        ({}, {"levels": [{"epsilon": 1}, {"epsilon": 2, "seeds": 8}]}, "rows.one.seeds: 8; allowed: 5"),
        ({}, {"budget": "reduced"}, "rows.one.budget: 'reduced'; allowed with a plan: 'full', 'own'"),
    ],
)
def test_what_is_not_as_planned_is_refused_in_one_line(
    plan: dict[str, Any], row: dict[str, Any], line: str
) -> None:
    assert line in refusal_of(lambda: params.parse(planned(plan, row)))


def repeated(first: int = 5, again: int = 60) -> dict[str, Any]:
    """GOOD, where row `one` repeats what a plan of ``first`` seeds left undecided."""
    raw = planned({"seeds": first}, {"plan": "davody2020-t5-repeated", "seeds": again})
    raw["plans"]["davody2020-t5-repeated"] = {**PLAN, "seeds": again}
    raw["rows"]["first"] = {**raw["rows"]["one"], "plan": "davody2020-t5", "seeds": first}
    return raw


def test_a_repetition_changes_seeds_and_nothing_else() -> None:
    raw = repeated()
    raw["rows"]["one"]["settings"] = {**raw["rows"]["one"]["settings"], "learning_rate": 0.125}
    line = "rows.one: repeats 'epsilon=1' with other settings than its first plan's row"
    assert line in refusal_of(lambda: params.parse(raw))
    raw["rows"]["one"]["informed"] = "test results of the first plan"
    assert params.parse(raw).rows["one"].repeats


def test_a_part_of_a_plan_may_be_repeated_but_no_value_twice() -> None:
    raw = repeated()
    raw["plans"]["davody2020-t5-repeated-part"] = {**PLAN, "seeds": 12}
    part = {**raw["rows"]["one"], "plan": "davody2020-t5-repeated-part", "seeds": 12}
    raw["rows"]["part"] = part
    line = "rows.part: repeats 'DPSGD (LeNet-5)' at 'epsilon=1', as rows.one does; allowed: one repetition"
    assert line in refusal_of(lambda: params.parse(raw))
    part["levels"], raw["rows"]["one"]["levels"] = part["levels"][:1], part["levels"][1:]
    row = params.parse(raw).rows["part"]
    assert row.repeats
    assert row.trainings[0][1] == 200


def test_a_repetition_has_seeds_of_its_own_and_needs_room_for_them_and_a_plan_to_repeat() -> None:
    row = params.parse(repeated(100, 800)).rows["one"]
    assert [seed for _, seed in row.trainings] == [*range(200, SEARCHED_SEED)] * 2
    line = "plans.davody2020-t5.seeds: 101; allowed: at most 100"
    assert line in refusal_of(lambda: params.parse(repeated(101)))
    line = "plans.davody2020-t5-repeated.seeds: 801; allowed: at most 800"
    assert line in refusal_of(lambda: params.parse(repeated(again=801)))
    raw = repeated()
    del raw["plans"]["davody2020-t5"]
    line = "plans.davody2020-t5-repeated: no such entry 'davody2020-t5'"
    assert line in refusal_of(lambda: params.parse(raw))


def test_a_plan_may_be_for_some_values_of_a_table_but_no_value_has_two() -> None:
    raw = planned()
    raw["plans"] |= {"davody2020-t5-private": PLAN, "davody2020-t5-private-repeated": PLAN}
    raw["rows"]["one"]["line"] = "lenet5"
    first, other = raw["rows"]["one"], {**raw["rows"]["one"], "plan": "davody2020-t5-private"}
    raw["rows"]["other"] = other
    line = "rows.other.plan: 'davody2020-t5-private', but 'davody2020-t5' has "
    assert line in refusal_of(lambda: params.parse(raw))
    raw["rows"]["other"] = {**other, "label": "another name of the same line"}
    assert line in refusal_of(lambda: params.parse(raw))
    # what does something differently decides no printed value
    raw["rows"]["other"] = {**other, "variant": "with other statistics"}
    params.parse(raw)
    raw["rows"]["other"] = other
    first["levels"], other["levels"] = first["levels"][:1], first["levels"][1:]
    again = {**other, "plan": "davody2020-t5-private-repeated"}
    raw["rows"]["again"] = again
    rows = params.parse(raw).rows
    assert [rows[key].repeats for key in ("one", "other", "again")] == [False, False, True]
    assert [rows[key].trainings[0][1] for key in ("one", "other", "again")] == [100, 100, 200]


@pytest.mark.parametrize(
    ("plan", "row", "same"),
    [
        ({}, {"label": "another"}, True),
        ({"margin": 2.0}, {}, False),
        ({"seeds": 6}, {"seeds": 6}, False),
        ({}, {"levels": [{"epsilon": 1}]}, False),
        ({}, {"settings": {"batch": 100, "epochs": 2, "learning_rate": 0.5}}, False),
    ],
)
def test_a_plan_digest_moves_with_the_plan_and_the_settings_of_its_row(
    plan: dict[str, Any], row: dict[str, Any], same: bool
) -> None:
    before = not_none(params.parse(planned()).plan_digest("one"))
    assert (params.parse(planned(plan, row)).plan_digest("one") == before) is same


def test_a_row_without_a_plan_has_no_plan_digest_and_the_digest_it_had() -> None:
    raw = planned()
    del raw["rows"]["one"]["plan"]
    assert params.parse(raw).plan_digest("one") is None
    raw["rows"]["one"]["seeds"] = GOOD["rows"]["one"]["seeds"]
    assert params.parse(raw).row_digest("one") == params.parse(GOOD).row_digest("one")
