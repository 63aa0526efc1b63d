"""params.yaml: what is refused, and in which words; what changes a row's digest and what doesn't."""

import math
from pathlib import Path
from typing import Any

import pytest

from dprepro.errors import UserError
from dprepro.pipeline import params
from tests.params.good import GOOD, changed
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
