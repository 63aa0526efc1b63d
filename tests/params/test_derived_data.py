"""Data with weights to start from, or with relevances: what they may be made of, and what they count for."""

import copy
from typing import Any

import pytest

from dprepro.pipeline import params
from tests.params.good import GOOD, changed, with_relevance
from tests.refusal import refusal_of


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


@pytest.mark.parametrize("kind", ["network", "table"])
def test_public_examples_have_the_features_of_the_private_ones(kind: str) -> None:
    """With other features of the same shape equal examples would not be found."""
    raw = copy.deepcopy(GOOD)
    both: tuple[dict[str, Any], dict[str, Any]]
    if kind == "network":
        network = {
            "architecture": "resnet18",
            "features": 512,
            "weights": "a.pth",
            "digest": f"sha256:{64 * '2'}",
            "source": "here",
            "licence": "none",
            "trained_on": "images",
        }
        both = {"network": network}, {"network": network | {"digest": f"sha256:{64 * '3'}"}}
    else:
        columns = {"age": {"range": [0, 1]}, "dose": {"range": [0, 9]}}
        table = {"kind": "table", "label": "class", "columns": columns, "shape": None}
        both = table, table | {"columns": {name: columns[name] for name in ("dose", "age")}}
    for entry, extra in zip(("scans", "others"), both, strict=True):
        declared = OWN | {"path": f"{entry}.npz", "digest": f"sha256:{len(entry):064}"} | extra
        raw.setdefault("own", {})[entry] = {
            key: value for key, value in declared.items() if value is not None
        }
    raw["data"]["mnist"] |= {"raw": "scans", "public": {"raw": "others", "count": 8}}
    raw["rows"], raw["searches"] = {}, {}
    assert refusal_of(lambda: params.parse(raw)) == (
        "params.yaml: data.mnist.public.raw: 'others' has other features than 'scans'; allowed: the same "
        "public network, or the same columns in the same order"
    )
    raw["own"]["others"].update({key: value for key, value in both[0].items() if value is not None})
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
