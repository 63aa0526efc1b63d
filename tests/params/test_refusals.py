"""params.yaml: what is refused, and in which words; plans and derived data; what changes a digest."""

import copy
import math
from pathlib import Path
from typing import Any

import pytest

from dprepro.errors import UserError
from dprepro.pipeline import params
from dprepro.pipeline.params.schema import SEARCHED_SEED
from tests.not_none import not_none
from tests.params.good import GOOD, changed, with_relevance
from tests.refusal import refusal_of


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("typo", 1, "typo: unknown key; allowed: code, source, raw, own, data"),
        ("rows/one/settings/clipp", 1, "rows.one.settings.clipp: unknown key; allowed: batch, learning_rate"),
        ("rows/one/settings/early_stopping", True, "settings.early_stopping: no epsilon covers an end that"),
        ("rows/one/settings/schedule", "step", "settings.milestones: missing; 'schedule: step' needs shares"),
        ("rows/one/settings/gamma", 0.5, "settings.gamma: allowed with 'schedule: step' alone; schedule is"),
        ("rows/one/settings/weight_decay", 2, "weight_decay: 2.0 times the learning rate 0.5 leaves nothing"),
        ("rows/one/settings/class_weights", [1, 0], "settings.class_weights.1: 0 is not allowed: Input"),
        ("rows/one/seeds", ..., "rows.one.seeds: missing"),
        ("rows/one/seeds", "two", "rows.one.seeds: 'two' is not allowed: Input should be a valid integer"),
        ("rows/one/settings/delta", 0.001, "settings.delta: 0.001 means nothing; allowed: below 1/1000"),
        ("rows/one/settings/learning_rate", "nan", "rows.one.settings.learning_rate"),
        ("rows/one/settings/learning_rate", True, "learning_rate: True is not allowed: Input should be a va"),
        ("rows/one/settings/nominal_examples", 99, "100 is larger than 'nominal_examples'; allowed: 1 to 99"),
        ("rows/one/settings/batch", 1001, "1001 is larger than the training split of 'mnist'; allowed: 1 to"),
        ("rows/one/model/name", "lenet6", "no model 'lenet6'; allowed: adlm_cnn, bilstm, convnet, lenet5"),
        ("rows/one/method", "sgd", "rows.one.method: no method 'sgd'; allowed: adlm, batch_clipping, dpsgd"),
        ("rows/one/model/normalization", "running_bn", "does not work with method 'dpsgd'; allowed: none"),
        ("rows/one/model/trainable", "linear", "rows.one.model.trainable: 'linear' needs data of 'starts'"),
        (
            "rows/one/model",
            {"name": "lenet5", "normalization": "response", "epsilon": 0.1},
            "rows.one.model.epsilon: 0.1 has no effect with normalization 'response'; allowed: 1e-05",
        ),
        ("rows/one/model/order", "relu_norm", "order: 'relu_norm' is for wrn16_4; allowed: 'norm_relu'"),
        ("rows/one/simulates", "one", "rows.one.simulates: 'one'; only rows of method 'tan' can be scaled"),
        ("rows/one/axis", "clp", "axis: 'clp' is no setting; allowed: accountant, batch"),
        ("starts/mnist", {"data": "mnist", "row": "one"}, "starts.mnist: 'data' has an entry of that name"),
        ("rows/one/levels", [{"epsilon": 1}, {"epsilon": 1.0000001}], "levels: the same epsilon twice"),
        ("rows/one/search", "none", "rows.one.search: no such entry 'none'; allowed: grid"),
        ("searches/grid/grid/learning_rate", [1, -1], "searches.grid: learning_rate: -1 is not allowed"),
        ("searches/grid/grid", {"speed": [1]}, "searches.grid: speed: unknown key; allowed: batch"),
        ("data/mnist/public/raw", "x", "data.mnist.public.raw: no such entry 'x'; allowed: kmnist, mnist"),
        (
            "data/mnist/validation",
            0,
            "searches.grid.row: 'mnist' has no validation examples; a search needs some",
        ),
        ("rows/one/seeds", "x" * 10_000, "xxx...xxx"),
        ("rows/one/paper", "../../evil", "String should match pattern"),
        ("\x1b[31m", 1, "\\x1b[31m: unknown key"),
    ],
)
def test_what_is_wrong_is_one_line_with_file_key_and_what_is_allowed(
    path: str, value: Any, line: str
) -> None:
    refused = refusal_of(lambda: params.parse(changed(path, value)))
    assert refused.startswith("params.yaml: ")
    assert line in refused
    assert len(refused) < 1000


def test_several_problems_are_a_line_each() -> None:
    raw = changed("rows/one/seeds", 0)
    raw["typo"] = 1
    with pytest.raises(UserError) as caught:
        params.parse(raw)
    assert len(str(caught.value).splitlines()) == 2


def test_files_that_are_missing_or_have_no_settings(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    assert "No such file" in refusal_of(lambda: params.load(path))
    for text, said in (
        ("", "is empty; allowed: keys such as raw, data and rows"),
        ("- rows", "has ['rows']; allowed: keys such as raw, data and rows"),
        ("code: [none-such]", "code.0: 'none-such' is not allowed"),
        ("code: [none_such]", "code: no package 'none_such'; allowed: a folder with Python files beside"),
    ):
        path.write_text(text)
        assert refusal_of(lambda: params.load(path)).startswith(f"{path}: {said}")
    path.write_text("rows:\n  one: 1\n  one: 2\n")
    assert refusal_of(lambda: params.load(path)) == (
        f'{path}: line 3: found duplicate key "one"; allowed: each key once'
    )
    hostile = ("!!python/object/apply:os.system [x]", "[" * 2000, "9" * 6000)
    for value in ("[", "!!bool maybe", "!!timestamp never", "!!int one", "!!binary \u00e4", *hostile):
        path.write_text(f"rows: {value}\n")
        assert "params.yaml: not YAML" in refusal_of(lambda: params.load(path))
    path.write_bytes(b"\xff\xfe")
    assert "params.yaml: not YAML" in refusal_of(lambda: params.load(path))


@pytest.mark.parametrize(
    ("path", "value", "same"),
    [
        ("rows/one/label", "another", True),
        ("rows/one/search", "grid", True),
        ("rows/one/settings/epochs", 1.0, True),
        ("rows/one/settings/clip", 1.0, True),  # the default, said aloud
        ("rows/one/axis", "epsilon", False),
        ("rows/one/settings/clip", 2.0, False),
        ("rows/one/seeds", 3, False),
        ("rows/one/levels", [{"epsilon": 1, "seeds": 3}, {"epsilon": math.inf}], False),
        ("rows/one/reproducible", True, False),
        ("rows/one/model/normalization", "layer", False),
        ("data/mnist/validation", 99, False),
        ("raw/kmnist/edition", "other", False),
    ],
)
def test_the_digest_covers_what_decides_numbers_and_nothing_else(path: str, value: Any, same: bool) -> None:
    before = params.parse(GOOD).row_digest("one")
    assert (params.parse(changed(path, value)).row_digest("one") == before) is same


def test_steps_are_epochs_in_expectation() -> None:
    configured = params.parse(GOOD).rows["one"].resolved[0]
    assert configured.total_steps(1000) == 10
    assert configured.total_steps(50) == 1
    assert configured.private
    assert not params.parse(GOOD).rows["one"].resolved[1].private


def test_levels_are_named_by_the_axis() -> None:
    row = params.parse(GOOD).rows["one"]
    assert [row.level(configured) for configured in row.resolved] == ["epsilon=1", "epsilon=inf"]
    raw = changed("rows/one/levels", [{"epsilon": 1, "batch": size} for size in (50, 100)])
    raw["rows"]["one"]["axis"] = "batch"
    row = params.parse(raw).rows["one"]
    assert [row.level(configured) for configured in row.resolved] == ["batch=50", "batch=100"]


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


def with_start(private: str, public: str) -> dict[str, Any]:
    """GOOD, where `one` starts from weights that were trained on these two raw data sets."""
    raw = copy.deepcopy(GOOD)
    raw["raw"]["mnist-again"] = {"of": "mnist"}
    raw["data"]["other"] = {**raw["data"]["mnist"], "raw": private, "public": {"raw": public, "count": 8}}
    raw["rows"]["before"] = {**raw["rows"]["one"], "data": "other"}
    raw["starts"] = {"tuned": {"data": "mnist", "row": "before"}}
    raw["rows"]["one"]["data"] = "tuned"
    return raw


@pytest.mark.parametrize("again", ["mnist", "mnist-again"])
@pytest.mark.parametrize("public", [False, True])
def test_weights_that_saw_the_private_data_are_not_public(again: str, public: bool) -> None:
    """Whatever edition of them it was, and if they were the other row's public images."""
    raw = with_start("kmnist", again) if public else with_start(again, "kmnist")
    assert refusal_of(lambda: params.parse(raw)) == (
        f"params.yaml: starts.tuned.row: 'before' was trained with '{again}', which is private in 'mnist'; "
        "allowed: rows on other data"
    )


OWN = {"kind": "npz", "path": "data/own/scans.npz", "digest": f"sha256:{64 * '0'}", "classes": ["a", "b"],
       "shape": [1, 28, 28], "test": 10}  # fmt: skip


@pytest.mark.parametrize(
    "again",
    [
        {"digest": f"sha256:{64 * '1'}", "shape": [1, 48, 48]},
        {"path": "data/own/elsewhere.npz"},
        {"path": "data/own/features.npz", "digest": f"sha256:{64 * '1'}", "of": "scans"},
    ],
)
def test_own_files_in_another_form_are_no_other_data(again: dict[str, Any]) -> None:
    """The same path or the same content is seen; what else is the same must be said."""
    raw = with_start("again", "kmnist")
    raw["own"] = {"scans": OWN, "again": OWN | again}
    raw["data"]["mnist"]["raw"] = "scans"
    assert refusal_of(lambda: params.parse(raw)).startswith(
        "params.yaml: starts.tuned.row: 'before' was trained with 'again', which is private in 'mnist'"
    )
    raw["own"]["again"] = OWN | {"path": "data/own/b.npz", "digest": f"sha256:{64 * '1'}"}
    params.parse(raw)


def test_links_between_own_files_join_all_of_them() -> None:
    """`a` and `b` are one file, which is another form of `z`; `d` has the path of `b`, and `c` is `d`."""
    raw = copy.deepcopy(GOOD)
    digests = {name: f"sha256:{64 * name}" for name in "1234"}
    raw["own"] = {
        "z": OWN | {"path": "z.npz", "digest": digests["1"]},
        "a": OWN | {"path": "a.npz", "digest": digests["2"]},
        "b": OWN | {"path": "b.npz", "digest": digests["2"], "of": "z"},
        "d": OWN | {"path": "b.npz", "digest": digests["3"]},
        "c": OWN | {"path": "c.npz", "digest": digests["3"]},
        "other": OWN | {"path": "e.npz", "digest": digests["4"]},
    }
    settings = params.parse(raw)
    assert {settings.raw_set(name) for name in "zabdc"} == {"z"}
    assert settings.raw_set("other") == "other"
    raw["own"]["c"]["of"] = "mnist"
    assert {params.parse(raw).raw_set(name) for name in "zabdc"} == {"mnist"}


def test_public_examples_are_no_other_form_of_the_private_ones() -> None:
    """Their contents differ, so that nothing else would tell."""
    raw = copy.deepcopy(GOOD)
    again = OWN | {"path": "b.npz", "digest": f"sha256:{64 * '1'}"}
    raw["own"] = {"scans": OWN, "again": again | {"of": "scans"}}
    raw["data"]["mnist"] |= {"raw": "scans", "public": {"raw": "again", "count": 8}}
    assert refusal_of(lambda: params.parse(raw)) == (
        "params.yaml: data.mnist.public.raw: 'again' has the examples of 'scans' in another form; allowed: "
        "'scans' itself, or other examples"
    )
    raw["own"]["again"] = again
    params.parse(raw)


NETWORK = {
    "architecture": "resnet18", "features": 512, "weights": "a.pth", "digest": f"sha256:{64 * '2'}",
    "source": "here", "licence": "none", "trained_on": "images",
}  # fmt: skip
COLUMNS: dict[str, Any] = {"age": {"range": [0, 1]}, "dose": {"range": [0, 9]}}
TABLE = {name: value for name, value in OWN.items() if name != "shape"} | {"kind": "table", "label": "class"}


@pytest.mark.parametrize(
    ("private", "public"),
    [
        (OWN | {"network": NETWORK}, {"network": NETWORK | {"digest": f"sha256:{64 * '3'}"}}),
        (TABLE | {"columns": COLUMNS}, {"columns": dict(reversed(COLUMNS.items()))}),
    ],
    ids=["network", "table"],
)
def test_public_examples_have_the_features_of_the_private_ones(
    private: dict[str, Any], public: dict[str, Any]
) -> None:
    """With other features of the same shape equal examples would not be found."""
    raw = copy.deepcopy(GOOD)
    raw["rows"], raw["searches"] = {}, {}
    others = private | {"path": "others.npz", "digest": f"sha256:{64 * '1'}"}
    raw["own"] = {"scans": private, "others": others | public}
    raw["data"]["mnist"] |= {"raw": "scans", "public": {"raw": "others", "count": 8}}
    assert refusal_of(lambda: params.parse(raw)) == (
        "params.yaml: data.mnist.public.raw: 'others' has other features than 'scans'; allowed: the same "
        "public network, or the same columns in the same order"
    )
    raw["own"]["others"] = others
    params.parse(raw)


def test_another_form_of_nothing_is_one_line() -> None:
    raw = copy.deepcopy(GOOD)
    raw["own"] = {"scans": OWN, "again": OWN | {"of": "scan"}}
    assert refusal_of(lambda: params.parse(raw)).startswith("params.yaml: own.again.of: no such entry 'scan'")


def test_a_row_that_starts_from_public_weights_is_made_of_the_row_they_come_from() -> None:
    raw = with_start("kmnist", "kmnist")
    digest = params.parse(raw).row_digest("one")
    assert digest != params.parse(GOOD).row_digest("one")
    raw["rows"]["before"]["seeds"] = 3
    assert params.parse(raw).row_digest("one") != digest
    raw["rows"]["one"]["model"] = {"name": "lenet5", "epsilon": 0.1}
    line = refusal_of(lambda: params.parse(raw))
    assert "rows.one.model.epsilon: 0.1, but the weights of 'tuned'" in line


TEXTS = {"raw": "mnist", "train": 10, "validation": 1, "public": {"raw": "kmnist", "count": 1},
         "text": {"tokens": 8, "vocabulary": 20}}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("rows/adaptive/data", "mnist",
         "rows.adaptive.data: method 'adlm' needs data of 'relevances', not 'mnist'; there are: relevant"),
        ("relevances/relevant/row", "adaptive",
         "relevances.relevant.row: 'adaptive' is trained with relevances itself"),
        ("relevances/relevant/data", "texts",
         "relevances.relevant: is for images; allowed: data and rows without texts"),
        ("relevances/relevant/examples", 1001, "relevances.relevant.examples: 1001; allowed: 1 to 1000"),
        ("relevances/texts", {"data": "mnist", "row": "one"},
         "relevances.texts: 'data' or 'starts' has an entry of that name too"),
        ("rows/one", {**GOOD["rows"]["one"], "method": "tan", "levels": [{"batch": 100}],
                      "settings": {"sigma": 1.0, "steps": 10, "learning_rate": 1}},
         "relevances.relevant.row: 'one' is trained by 'tan', which scales images by its public ones; "
         "allowed: rows of "),
        ("starts/tuned", {"data": "mnist", "row": "adaptive"},
         "rows.adaptive.data: no such entry 'relevant'"),
        ("rows/adaptive/model/trainable", "linear",
         "rows.adaptive.model.trainable: 'linear' needs data of 'starts'; there are: none"),
    ],
)  # fmt: skip
def test_relevances_that_make_no_sense_are_one_line(path: str, value: Any, line: str) -> None:
    raw = with_relevance()
    raw["data"]["texts"] = TEXTS
    params.parse(raw)
    refused = refusal_of(lambda: params.parse(changed(path, value, raw)))
    assert refused.startswith(f"params.yaml: {line}")


def test_a_row_with_relevances_is_made_of_the_row_they_come_from() -> None:
    digest = params.parse(with_relevance()).row_digest("adaptive")

    def changed_digest(change: Any) -> str:
        raw = with_relevance()
        change(raw)
        return params.parse(raw).row_digest("adaptive")

    for same in (
        lambda raw: raw["rows"]["one"].update(label="another"),
        lambda raw: raw["rows"]["adaptive"]["settings"].update(relevance_share=0.25),
    ):
        assert changed_digest(same) == digest
    for other in (
        lambda raw: raw["rows"]["one"].update(seeds=3),
        lambda raw: raw["relevances"]["relevant"].update(examples=500),
        lambda raw: raw["rows"]["adaptive"]["settings"].update(sensitivity="neurons"),
    ):
        assert changed_digest(other) != digest
    assert params.parse(GOOD).row_digest("one") == params.parse(with_relevance()).row_digest("one")


def test_relevances_leave_a_search_valid() -> None:
    """The examples are the same with and without them."""
    raw = with_relevance()
    raw["rows"]["adaptive"]["search"] = "grid"
    params.parse(raw)
    raw["rows"]["one"]["data"] = "other"
    line = refusal_of(lambda: params.parse(raw))
    assert "rows.adaptive.search: 'grid' searched on other data, 'other'" in line
