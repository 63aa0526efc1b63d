"""params.yaml: what is refused, and in which words; what changes a row's digest and what doesn't."""

import copy
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from pipeline import params
from pipeline.errors import UserError
from pipeline.fields import Strict
from pipeline.ledgers.settings import AccountSettings
from pipeline.methods.batch_clipping.settings import BatchClippingSettings
from pipeline.methods.dpsgd.settings import DpsgdSettings
from pipeline.methods.laplace.settings import AdlmSettings, IlmSettings
from pipeline.methods.noisy_weights.settings import NoisyWeightsSettings
from pipeline.methods.tan.settings import TanSettings

ROOT = Path(__file__).parents[2]
GOOD = YAML(typ="safe", pure=True).load("""
raw: {mnist: {}, kmnist: {}}
data:
  mnist: {raw: mnist, train: 1000, validation: 100, public: {raw: kmnist, count: 8}}
rows:
  one:
    paper: davody2020
    table: t5
    label: DPSGD (LeNet-5)
    data: mnist
    model: {name: lenet5}
    method: dpsgd
    seeds: 2
    reproducible: false
    settings: {batch: 100, epochs: 1, learning_rate: 0.5}
    levels: [{epsilon: 1}, {epsilon: .inf}]
searches:
  grid: {row: one, grid: {learning_rate: [0.1, 1]}}
""")


def changed(path: str, value: Any) -> dict[str, Any]:
    """GOOD with one value replaced, or removed where ``value`` is ...."""
    raw = copy.deepcopy(GOOD)
    at = raw
    *parents, last = path.split("/")
    for key in parents:
        at = at.setdefault(key, {})
    if value is ...:
        del at[last]
    else:
        at[last] = value
    return raw


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("typo", 1, "typo: unknown key"),
        ("rows/one/model/norm", "layer", "rows.one.model.norm: unknown key"),
        ("rows/one/settings/clipp", 1, "rows.one.settings.clipp: unknown key"),
        ("rows/one/seeds", ..., "rows.one.seeds: missing"),
        ("rows/one/seeds", "two", "rows.one.seeds: 'two' is not allowed: Input should be a valid integer"),
        ("rows/one/seeds", 0, "rows.one.seeds: 0 is not allowed: Input should be greater than or equal to 1"),
        ("rows/one/settings/batch", 1.5, "rows.one.settings.batch: 1.5 is not allowed"),
        (
            "rows/one/settings/clip",
            -1,
            "rows.one.settings.clip: -1 is not allowed: Input should be greater than 0",
        ),
        (
            "rows/one/settings/delta",
            1,
            "rows.one.settings.delta: 1 is not allowed: Input should be less than 1",
        ),
        ("rows/one/settings/learning_rate", "nan", "rows.one.settings.learning_rate"),
        (
            "rows/one/settings/batch",
            1001,
            "rows.one.settings.batch: 1001 is larger than the training split of 'mnist'; allowed: 1 to 1000",
        ),
        (
            "rows/one/model/normalization",
            "batch",
            "'batch' is not allowed: String should match pattern '^(none|layer|group|response|[a-z]+_bn)$'",
        ),
        (
            "rows/one/model/name",
            "lenet6",
            "no model 'lenet6'; allowed: adlm_cnn, bilstm, convnet, lenet5, lenet5_tanh",
        ),
        (
            "rows/one/method",
            "sgd",
            "rows.one.method: no method 'sgd'; allowed: adlm, batch_clipping, dpsgd, ilm, noisy_weights, tan",
        ),
        ("rows/one/model/normalization", "noisy_bn", "'noisy_bn' is made of noise; allowed: finite epsilons"),
        (
            "rows/one/model/normalization",
            "running_bn",
            "does not work with method 'dpsgd'; allowed: none",
        ),
        ("rows/one/model/trainable", "linear", "rows.one.model.trainable: 'linear' needs data of 'starts'"),
        (
            "rows/one/model/order",
            "relu_norm",
            "rows.one.model: order: 'relu_norm' is for wrn16_4; allowed: 'norm_relu'",
        ),
        (
            "rows/one/model/order",
            "relu",
            "rows.one.model.order: 'relu' is not allowed: Input should be 'norm_relu' or 'relu_norm'",
        ),
        ("rows/one/simulates", "one", "rows.one.simulates: 'one'; only rows of method 'tan' can be scaled"),
        ("rows/one/axis", "clp", "axis: 'clp' is no setting; allowed: accountant, activation_range"),
        ("starts/tuned", {"data": "mnist", "row": "two"}, "starts.tuned.row: no such entry 'two'"),
        ("starts/mnist", {"data": "mnist", "row": "one"}, "starts.mnist: 'data' has an entry of that name"),
        ("rows/one/levels", [], "rows.one.levels"),
        ("rows/one/levels", [{"epsilon": 1}, {"epsilon": 1.0}], "levels: the same epsilon twice"),
        ("rows/one/levels", [{"epsilon": 1}, {"epsilon": 1.0000001}], "levels: the same epsilon twice"),
        (
            "rows/one/settings/delta",
            0.001,
            "rows.one.settings.delta: 0.001 means nothing; allowed: below 1/1000",
        ),
        ("searches/grid/grid", {"clip": []}, "searches.grid.grid.clip: [] is not allowed"),
        ("rows/one/levels", [{"epsilon": 0}], "rows.one.settings.epsilon: 0 is not allowed"),
        ("rows/one/data", "cifar", "rows.one.data: no such entry 'cifar'; allowed: mnist"),
        ("rows/one/search", "none", "rows.one.search: no such entry 'none'; allowed: grid"),
        ("raw/A set", {}, "'A set' is not allowed: String should match pattern"),
        ("data/mnist/raw", "mnst", "data.mnist.raw: no such entry 'mnst'; allowed: kmnist, mnist"),
        ("data/mnist/public/raw", "x", "data.mnist.public.raw: no such entry 'x'; allowed: kmnist, mnist"),
        ("searches/grid/row", "two", "searches.grid.row: no such entry 'two'; allowed: one"),
        ("source", {"kind": "mirror"}, "'folder' goes with 'kind: mirror', and only with it"),
        (
            "source",
            {"kind": "official", "folder": "/x"},
            "'folder' goes with 'kind: mirror', and only with it",
        ),
        ("source", {"kind": "web"}, "Input should be 'official', 'mirror' or 'synthetic'"),
    ],
)
def test_what_is_wrong_is_one_line_with_file_key_and_what_is_allowed(
    path: str, value: Any, line: str
) -> None:
    with pytest.raises(UserError) as caught:
        params.parse(changed(path, value))
    found = str(caught.value).splitlines()
    assert len(found) == 1
    assert found[0].startswith("params.yaml: ")
    assert line in found[0]


def test_a_method_refuses_a_normalisation_it_can_not_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DpsgdSettings, "normalizations", ("none",))
    with pytest.raises(UserError, match="'layer' does not work with method 'dpsgd'; allowed: none"):
        params.parse(changed("rows/one/model/normalization", "layer"))


def test_a_search_on_other_data_is_no_search_of_the_row() -> None:
    raw = changed("rows/one/search", "grid")
    raw["data"]["other"] = raw["data"]["mnist"]
    raw["rows"]["two"] = {**raw["rows"]["one"], "data": "other", "search": None}
    raw["searches"]["grid"]["row"] = "two"
    with pytest.raises(UserError, match=r"rows\.one\.search: 'grid' searched on other data, 'other'"):
        params.parse(raw)


def test_several_problems_are_a_line_each() -> None:
    raw = changed("rows/one/seeds", 0)
    raw["typo"] = 1
    with pytest.raises(UserError) as caught:
        params.parse(raw)
    assert len(str(caught.value).splitlines()) == 2


def test_files_that_are_missing_or_not_yaml(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        params.load(tmp_path / "params.yaml")
    (tmp_path / "params.yaml").write_text("rows: [")
    with pytest.raises(UserError, match="not YAML"):
        params.load(tmp_path / "params.yaml")


def test_settings_are_frozen_and_yaml_is_version_1_2(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text((ROOT / "params.yaml").read_text())
    loaded = params.load(tmp_path / "params.yaml")
    row = loaded.rows["davody-t5-ln-lenet5"]
    assert row.resolved[0].delta == 1e-5
    with pytest.raises(ValueError, match="frozen"):
        row.seeds = 4  # type: ignore[misc]


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
    own = params.parse(GOOD).rows["one"].resolved[0]
    assert own.total_steps(1000) == 10
    assert own.total_steps(50) == 1
    assert own.private
    assert not params.parse(GOOD).rows["one"].resolved[1].private


def test_levels_are_named_by_the_axis(tmp_path: Path) -> None:
    row = params.parse(GOOD).rows["one"]
    assert [row.level(own) for own in row.resolved] == ["epsilon=1", "epsilon=inf"]
    raw = changed("rows/one/levels", [{"epsilon": 1, "batch": size} for size in (50, 100)])
    raw["rows"]["one"]["axis"] = "batch"
    row = params.parse(raw).rows["one"]
    assert [row.level(own) for own in row.resolved] == ["batch=50", "batch=100"]


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
    with pytest.raises(UserError) as caught:
        params.parse(with_start("kmnist", again) if public else with_start(again, "kmnist"))
    assert str(caught.value) == (
        f"params.yaml: starts.tuned.row: 'before' was trained with '{again}', which is private in 'mnist'; "
        "allowed: rows on other data"
    )


def test_a_start_from_a_row_on_unknown_data_is_one_line() -> None:
    raw = with_start("kmnist", "kmnist")
    raw["rows"]["before"]["data"] = "othr"
    with pytest.raises(
        UserError, match=r"^params\.yaml: rows\.before\.data: no such entry 'othr'; allowed: mn"
    ):
        params.parse(raw)


def test_a_row_that_starts_from_public_weights_is_made_of_the_row_they_come_from() -> None:
    raw = with_start("kmnist", "kmnist")
    digest = params.parse(raw).row_digest("one")
    assert digest != params.parse(GOOD).row_digest("one")
    raw["rows"]["before"]["seeds"] = 3
    assert params.parse(raw).row_digest("one") != digest
    raw["rows"]["one"]["model"] = {"name": "lenet5", "epsilon": 0.1}
    with pytest.raises(UserError, match=r"rows\.one\.model\.epsilon: 0\.1, but the weights of 'tuned'"):
        params.parse(raw)


def with_batch_clipping(**changes: Any) -> dict[str, Any]:
    """GOOD, where `one` is trained by batch clipping with public examples of its own."""
    raw = copy.deepcopy(GOOD)
    raw["data"]["mnist"]["public"]["raw"] = "mnist"
    raw["rows"]["one"] |= {
        "method": "batch_clipping",
        "settings": {"batch": 100, "epochs": 1, "learning_rate": 0.5, "clipping": "adaptive"} | changes,
        "levels": [{"sigma": 0.5}],
    }
    return raw


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"mini_set": 30}, "mini_set: 30 does not divide the batch; allowed: divisors of 100"),
        (
            {"mini_set": 4, "local_steps": 8},
            "local_steps: 8 does not divide the mini-set; allowed: divisors of 4",
        ),
        ({"sparsify": 5}, "norms: 'example' counts fixed entries too; allowed with sparsify: 'mini_set'"),
        (
            {"clipping": "none"},
            "sigma: 0.5 without clipping protects nothing; allowed: 0 with 'clipping: none'",
        ),
        (
            {"local_steps": 2, "sampling": "poisson"},
            "local_steps: 2; allowed with 'sampling: poisson': 1",
        ),
        (
            {"momentum": 0.5},
            "momentum: 0.5 with one local step does nothing; allowed: 0, or more local_steps",
        ),
        (
            {"clipping": "full", "groups": 2},
            "groups: 2 with 'clipping: full', which has one part; allowed: null",
        ),
        (
            {"clipping": "multiplied", "layer_noise": "least"},
            "layer_noise: 'least' with 'clipping: multiplied', which has one part; allowed: 'equal'",
        ),
        ({"public_examples": 9}, "public_examples: 9; allowed: 1 to 8"),
        ({"delta": 0.01}, "delta: 0.01 means nothing; allowed: below 1/1000"),
        ({"batch": 2000}, "batch: 2000 is larger than the training split of 'mnist'; allowed: 1 to 1000"),
    ],
)
def test_batch_clipping_that_means_nothing_is_refused(changes: dict[str, Any], line: str) -> None:
    assert params.parse(with_batch_clipping()).rows["one"].resolved[0].private
    with pytest.raises(UserError) as caught:
        params.parse(with_batch_clipping(**changes))
    assert str(caught.value) == f"params.yaml: rows.one.settings.{line}"


def test_batch_clipping_needs_public_examples_with_the_same_labels() -> None:
    raw = with_batch_clipping()
    raw["raw"]["mnist-again"] = {"of": "mnist"}
    raw["data"]["mnist"]["public"]["raw"] = "mnist-again"
    params.parse(raw)
    raw["data"]["mnist"]["public"]["raw"] = "kmnist"
    with pytest.raises(UserError, match=r"rows\.one\.data: 'mnist' has a public split of 'kmnist'"):
        params.parse(raw)


def test_augmentation_is_for_images() -> None:
    raw = with_batch_clipping(augment="crop_flip")
    params.parse(raw)
    raw["data"]["mnist"]["text"] = {"tokens": 8, "vocabulary": 20}
    with pytest.raises(UserError) as caught:
        params.parse(raw)
    assert str(caught.value) == (
        "params.yaml: rows.one.settings.augment: is for images, and 'mnist' has texts; allowed: none"
    )


TAN = {"batch": 400, "steps": 25, "sigma": 3, "learning_rate": 4, "copies": 4, "augment": "crop_flip"}
SMALL = {"batch": 100, "sigma": 0.75}


def with_tan(simulation: dict[str, Any] = SMALL, **changes: Any) -> dict[str, Any]:
    """GOOD, where `one` is a reference run and `small` its simulation."""
    raw = copy.deepcopy(GOOD)
    raw["rows"]["one"] |= {"method": "tan", "settings": {**TAN, **changes}, "levels": [{}]}
    small = {"simulates": "one", "settings": {**TAN, **changes, **simulation}}
    raw["rows"]["small"] = raw["rows"]["one"] | small
    return raw


def tan(**changes: Any) -> TanSettings:
    return TanSettings.model_validate(TAN | changes)


def test_tan_is_as_long_as_it_says_and_noted_ten_times() -> None:
    assert tan().total_steps(1000) == tan().total_steps(7) == 25
    for steps, notes in ((25, 10), (10, 10), (1000, 10), (3, 3)):
        noted = [done for done in range(1, steps + 1) if tan(steps=steps).logs_after(done, 1000)]
        assert len(noted) == notes
        assert noted[-1] == steps
    assert tan().private
    assert not tan(sigma=0).private


def test_tan_shares_a_step_where_only_numbers_differ() -> None:
    alike = {
        "sigma": 0.5, "learning_rate": 1.0, "schedule": "cosine", "clip": 2.0, "delta": 1e-6, "momentum": 0.9,
        "dampening": 0.5, "weight_decay": 0.1, "ema": 0.0,
    }  # fmt: skip
    apart = {
        "batch": 100, "steps": 30, "copies": 2, "augment": "simclr", "optimizer": "adam", "note_norms": True,
    }  # fmt: skip
    assert alike.keys() | apart.keys() == TanSettings.model_fields.keys()
    for name, value in alike.items():
        assert tan(**{name: value}).batching_key == tan().batching_key, name
    for name, value in {**apart, "sigma": 0.0}.items():
        assert tan(**{name: value}).batching_key != tan().batching_key, name


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"augment": "none"},
            "copies: 4 of an example that is not augmented; allowed with 'augment: none': 1",
        ),
        (
            {"optimizer": "adam", "momentum": 0.9},
            "momentum: 0.9; allowed with 'optimizer: adam', which has its own: 0",
        ),
        ({"dampening": 0.5}, "dampening: 0.5 without momentum only shrinks the rate; allowed: 0"),
        ({"delta": 0.001}, "delta: 0.001 means nothing; allowed: below 1/1000"),
        ({"batch": 2000}, "batch: 2000 is larger than the training split of 'mnist'; allowed: 1 to 1000"),
        ({"epochs": 3}, "epochs: unknown key"),
    ],
)
def test_tan_that_means_nothing_is_refused(changes: dict[str, Any], line: str) -> None:
    raw = with_tan(**changes)
    del raw["rows"]["small"]
    with pytest.raises(UserError) as caught:
        params.parse(raw)
    assert str(caught.value) == f"params.yaml: rows.one.settings.{line}"


def test_a_simulation_has_batch_and_noise_smaller_by_one_factor() -> None:
    raw = with_tan()
    params.parse(raw)
    assert tan(**SMALL).simulates(tan())
    assert not tan().simulates(tan(**SMALL))
    # any level of the reference will do, and what isn't the mechanism's may differ
    raw["rows"]["one"]["levels"] = [{"batch": 800}, {"batch": 400}]
    raw["rows"]["small"] |= {"seeds": 5, "budget": "reduced", "label": "small"}
    params.parse(raw)


@pytest.mark.parametrize(
    "simulation",
    [
        {"batch": 100, "sigma": 0.751},
        {"batch": 100, "sigma": 3},
        {"batch": 400, "sigma": 3},
        {"batch": 800, "sigma": 6},
        {**SMALL, "steps": 24},
        {**SMALL, "learning_rate": 2},
        {**SMALL, "copies": 2},
        {**SMALL, "clip": 2},
        {**SMALL, "ema": 0.9},
    ],
)
def test_what_is_no_simulation_is_refused(simulation: dict[str, Any]) -> None:
    with pytest.raises(UserError) as caught:
        params.parse(with_tan(simulation))
    level = f"batch={simulation['batch']}"
    assert str(caught.value) == (
        f"params.yaml: rows.small.simulates: no level of 'one' becomes {level!r} when batch and sigma shrink "
        "by one factor"
    )


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("model", {"name": "lenet_300_100"}, "'one' has another model or other data"),
        ("data", "other", "'one' has another model or other data"),
        ("simulates", "two", "no such entry 'two'; allowed: one, small"),
    ],
)
def test_a_simulation_is_of_a_row_with_its_model_and_data(key: str, value: Any, line: str) -> None:
    raw = with_tan()
    raw["data"]["other"] = raw["data"]["mnist"]
    raw["rows"]["small"][key] = value
    with pytest.raises(UserError) as caught:
        params.parse(raw)
    assert str(caught.value) == f"params.yaml: rows.small.simulates: {line}"


PERTURBED = {"batch": 100, "epochs": 1, "learning_rate": 0.003, "variant": "paper", "sensitivity": "maps"}


def with_relevance(relevance: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """GOOD, where `adaptive` is trained with the relevances of `one`, or of `other`, which saw other data."""
    raw = copy.deepcopy(GOOD)
    raw["data"]["other"] = {**raw["data"]["mnist"], "raw": "kmnist"}
    raw["rows"]["other"] = {**copy.deepcopy(raw["rows"]["one"]), "data": "other"}
    raw["relevances"] = {"relevant": {"data": "mnist", "row": "one", **(relevance or {})}}
    raw["rows"]["adaptive"] = copy.deepcopy(raw["rows"]["one"]) | {
        "data": "relevant",
        "method": "adlm",
        "settings": {**PERTURBED, **changes},
        "levels": [{"epsilon": changes.get("epsilon", 1)}],
    }
    return raw


def with_identical(**changes: Any) -> dict[str, Any]:
    """GOOD, where `one` is trained with the same noise on every feature."""
    raw = copy.deepcopy(GOOD)
    settings_ = {**PERTURBED, **changes}
    levels = [{"epsilon": changes.get("epsilon", 1)}]
    raw["rows"]["one"] |= {"method": "ilm", "settings": settings_, "levels": levels}
    return raw


SOUND = {"variant": "sound", "sensitivity": None}


@pytest.mark.parametrize(
    "changes",
    [{}, {"sensitivity": "neurons"}, {"variant": "code", "sensitivity": 9800}, SOUND, {"noise_batch": 1800}],
)
def test_a_variant_has_the_sensitivity_that_its_noise_needs(changes: dict[str, Any]) -> None:
    own = params.parse(with_identical(**changes)).rows["one"].resolved[0]
    assert own.private
    assert own.scale_batch == changes.get("noise_batch", 100)
    assert not own.model_copy(update={"epsilon": float("inf")}).private


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"sensitivity": None},
            "sensitivity: None; it goes with variants 'paper' and 'code', and only them",
        ),
        (
            {"variant": "sound"},
            "sensitivity: maps; it goes with variants 'paper' and 'code', and only them",
        ),
        (
            {**SOUND, "noise_batch": 1800},
            "noise_batch: 1800; allowed with 'variant: sound', which has no |L|: null",
        ),
        (
            {"exact": "inputs", "epsilon": float("inf")},
            "exact: 'inputs'; allowed with 'epsilon: .inf', which noises nothing: 'nothing'",
        ),
        ({"batch": 2000}, "batch: 2000 is larger than the training split of 'mnist'; allowed: 1 to 1000"),
    ],
)
def test_laplace_noise_that_means_nothing_is_refused(changes: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError) as caught:
        params.parse(with_identical(**changes))
    assert str(caught.value) == f"params.yaml: rows.one.settings.{line}"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"sensitivity": "map"}, "sensitivity: 'map' is not allowed: 'maps', 'neurons' or a number above 0"),
        ({"sensitivity": -1}, "sensitivity: -1 is not allowed: 'maps', 'neurons' or a number above 0"),
        ({"variant": "local"}, "'local' is not allowed: Input should be 'paper', 'code' or 'sound'"),
        ({"exact": "labels"}, "'labels' is not allowed: Input should be 'nothing', 'inputs' or 'loss'"),
        ({"loss_share": 1}, "1 is not allowed: Input should be less than 1"),
        ({"clip": 1}, "clip: unknown key"),
    ],
)
def test_a_laplace_setting_that_is_not_allowed_is_told(changes: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError) as caught:
        params.parse(with_identical(**changes))
    found = str(caught.value).splitlines()
    assert all(own.startswith("params.yaml: rows.one.settings.") for own in found)
    assert any(line in own for own in found)


def test_shares_of_epsilon_are_one_together() -> None:
    own = params.parse(with_relevance(relevance_share=0.1, loss_share=0.3)).rows["adaptive"].resolved[0]
    assert own.input_share + own.loss_share + own.relevance_share == pytest.approx(1)
    assert own.input_share == pytest.approx(0.6)
    assert params.parse(with_identical(loss_share=0.3)).rows["one"].resolved[0].input_share == 0.7


@pytest.mark.parametrize(("loss", "relevance"), [(0.75, 0.25), (0.7, 0.3), (0.9, 0.1), (0.5, 0.6)])
def test_the_inputs_need_a_share_of_epsilon(loss: float, relevance: float) -> None:
    """Whatever way 1 - .7 - .3 is rounded."""
    with pytest.raises(UserError) as caught:
        params.parse(with_relevance(loss_share=loss, relevance_share=relevance))
    assert str(caught.value) == (
        f"params.yaml: rows.adaptive.settings.relevance_share: {relevance} leaves the inputs nothing; "
        f"allowed: below {1 - loss:g}"
    )


@pytest.mark.parametrize("epsilon", [1, float("inf")])
@pytest.mark.parametrize(
    ("of", "good", "bad", "line"),
    [
        ("train", 0.2, 0, "0.0; allowed with the private relevances of 'relevant': above 0"),
        ("public", 0, 0.2, "0.2; allowed with the public relevances of 'relevant': 0"),
    ],
)
def test_private_relevances_need_a_share_of_epsilon_and_public_ones_none(
    of: str, good: float, bad: float, line: str, epsilon: float
) -> None:
    relevance = {"of": of, "row": "other"}
    params.parse(with_relevance(relevance, relevance_share=good, epsilon=epsilon))
    with pytest.raises(UserError) as caught:
        params.parse(with_relevance(relevance, relevance_share=bad, epsilon=epsilon))
    assert str(caught.value) == f"params.yaml: rows.adaptive.settings.relevance_share: {line}"


def test_laplace_replicas_share_a_step_where_only_numbers_differ() -> None:
    own = AdlmSettings.model_validate({**PERTURBED, "epsilon": 1})
    alike = {
        "epsilon": 2.0, "learning_rate": 1.0, "schedule": "cosine", "sensitivity": 9800.0,
        "noise_batch": 1800, "loss_share": 0.25, "relevance_share": 0.1, "exact": "loss",
    }  # fmt: skip
    apart = {
        "batch": 50, "epochs": 2.0, "variant": "code", "limit": 10.0, "optimizer": "sgd",
        "note_relevance": True,
    }  # fmt: skip
    assert alike.keys() | apart.keys() == AdlmSettings.model_fields.keys()
    for name, value in alike.items():
        assert own.model_copy(update={name: value}).batching_key == own.batching_key, name
    for name, value in {**apart, "epsilon": float("inf")}.items():
        assert own.model_copy(update={name: value}).batching_key != own.batching_key, name


TEXTS = {"raw": "mnist", "train": 10, "validation": 1, "public": {"raw": "kmnist", "count": 1},
         "text": {"tokens": 8, "vocabulary": 20}}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("rows/adaptive/data", "mnist",
         "rows.adaptive.data: method 'adlm' needs data of 'relevances', not 'mnist'; there are: relevant"),
        ("relevances/relevant/row", "two",
         "relevances.relevant.row: no such entry 'two'; allowed: adaptive, one, other"),
        ("relevances/relevant/row", "adaptive",
         "relevances.relevant.row: 'adaptive' is trained with relevances itself"),
        ("relevances/relevant/data", "relevant", "relevances.relevant.data: no such entry 'relevant'; "
         "allowed: mnist, other, texts"),
        ("relevances/relevant/data", "texts",
         "relevances.relevant: is for images; allowed: data and rows without texts"),
        ("rows/one/data", "texts",
         "relevances.relevant: is for images; allowed: data and rows without texts"),
        ("rows/one/data", "nothing", "rows.one.data: no such entry 'nothing'; allowed: mnist, other, texts"),
        ("relevances/relevant/examples", 1001, "relevances.relevant.examples: 1001; allowed: 1 to 1000"),
        ("relevances/relevant", {"data": "mnist", "row": "other", "of": "public", "examples": 9},
         "relevances.relevant.examples: 9; allowed: 1 to 8"),
        ("relevances/texts", {"data": "mnist", "row": "one"},
         "relevances.texts: 'data' or 'starts' has an entry of that name too"),
        ("relevances/relevant/of", "public",
         "relevances.relevant.row: 'one' was trained with 'mnist', which is private in 'mnist'; "
         "allowed: rows on other data"),
        ("relevances/relevant/of", "test",
         "relevances.relevant.of: 'test' is not allowed: Input should be 'train' or 'public'"),
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
    at = raw
    *parents, last = path.split("/")
    for key in parents:
        at = at.setdefault(key, {})
    at[last] = value
    with pytest.raises(UserError) as caught:
        params.parse(raw)
    assert str(caught.value).startswith(f"params.yaml: {line}")
    assert "\n" not in str(caught.value)


def test_a_row_with_relevances_is_made_of_the_row_they_come_from() -> None:
    digest = params.parse(with_relevance()).row_digest("adaptive")

    def changed_digest(change: Any) -> str:
        raw = with_relevance()
        change(raw)
        return params.parse(raw).row_digest("adaptive")

    for same in (
        lambda raw: raw["rows"]["one"].update(label="another"),
        lambda raw: raw["relevances"]["relevant"].update(of="train"),  # the default, said aloud
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


def test_relevances_differ_by_whose_they_are_and_how_many() -> None:
    digests = {
        params.parse(
            with_relevance({"row": "other", "of": of, "examples": examples}, relevance_share=share)
        ).relevance_digest("relevant")
        for of, share in (("train", 0.25), ("public", 0))
        for examples in (None, 5)
    }
    assert len(digests) == 4


def test_relevances_say_what_makes_them_and_how_they_are_split() -> None:
    found = params.parse(with_relevance())
    assert found.stage_of("relevant") == "relevance"
    assert found.split("relevant") is found.data["mnist"]
    assert found.derived == found.relevances


def test_relevances_leave_a_search_valid() -> None:
    """The examples are the same with and without them."""
    raw = with_relevance()
    raw["rows"]["adaptive"]["search"] = "grid"
    params.parse(raw)
    raw["rows"]["one"]["data"] = "other"
    with pytest.raises(UserError, match=r"rows\.adaptive\.search: 'grid' searched on other data, 'other'"):
        params.parse(raw)


ACCOUNT = {
    "paper": "nguyen2023", "table": "gdp", "label": "BN-LeNet-5",
    "settings": {"examples": 1000, "batch": 10, "epochs": 5},
    "levels": [{"noise_multiplier": 2.5}, {"noise_multiplier": 1.5}],
}  # fmt: skip


def test_an_account_is_a_line_with_levels_and_a_digest() -> None:
    found = params.parse({**GOOD, "accounts": {"two": ACCOUNT}})
    account = found.accounts["two"]
    assert [account.level(own) for own in account.resolved] == [
        "noise_multiplier=2.5",
        "noise_multiplier=1.5",
    ]
    assert account.resolved[0].total_steps == 500
    assert account.configured({"noise_multiplier": 1, "epochs": None, "steps": 7}).total_steps == 7
    assert found.lines.keys() == {"one", "two"}
    more = {**ACCOUNT, "settings": {**ACCOUNT["settings"], "parts": 8}}  # type: ignore[dict-item]
    other = params.parse({**GOOD, "accounts": {"two": more}})
    assert found.account_digest("two") != other.account_digest("two")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"batch": 2000}, "batch: 2000 is larger than examples; allowed: 1 to 1000"),
        ({"part": 8}, "settings.part: unknown key"),
        ({"sampling": "replacement"}, "sets: None; it goes with 'sampling: replacement', and only with it"),
        ({"sets": 2}, "sets: 2; it goes with 'sampling: replacement', and only with it"),
        ({"steps": 7}, "either 'epochs' or 'steps' tells the length; allowed: one of them"),
        ({"epochs": None}, "either 'epochs' or 'steps' tells the length; allowed: one of them"),
        ({"order": 8}, "order: goes with 'claimed_by: rdp' and 'sampling: poisson', and only with them"),
        (
            {"order": 8, "claimed_by": "rdp", "sampling": "fixed"},
            "order: goes with 'claimed_by: rdp' and 'sampling: poisson', and only with them",
        ),
        (
            {"order": 1, "claimed_by": "rdp"},
            "settings.order: 1 is not allowed: Input should be greater than 1",
        ),
        ({"claimed_by": "pld"}, "settings.claimed_by: 'pld' is not allowed: Input should be 'clt' or 'rdp'"),
    ],
)
def test_an_account_that_means_nothing_is_one_line(changes: dict[str, Any], line: str) -> None:
    wrong = {**ACCOUNT, "settings": {**ACCOUNT["settings"], **changes}}  # type: ignore[dict-item]
    with pytest.raises(UserError) as caught:
        params.parse({**GOOD, "accounts": {"two": wrong}})
    assert line in str(caught.value).splitlines()[0]
    assert str(caught.value).startswith("params.yaml: accounts.two.settings")
    with pytest.raises(UserError, match=r"accounts\.one: 'rows' has an entry of that name too"):
        params.parse({**GOOD, "accounts": {"one": ACCOUNT}})


@pytest.mark.parametrize(
    ("model", "defaults"),
    [
        (params.Raw, {"of": None, "edition": "official", "train": None, "test": None}),
        (params.Public, {"part": "train"}),
        (params.Data, {"seed": 0, "text": None}),
        (
            params.Model,
            {"normalization": "none", "groups": 1, "epsilon": 1e-5, "unnormalized": 0, "trainable": "all",
             "order": "norm_relu"},
        ),
        (
            DpsgdSettings,
            {"schedule": "constant", "momentum": 0.0, "clip": 1.0, "delta": 1e-5, "accountant": "rdp",
             "statistics_weight": 1.0, "activation_range": 8.0, "statistics_share": 0.5, "averaging": 0.1},
        ),
        (
            NoisyWeightsSettings,
            {"schedule": "constant", "augment": "none", "averaging": 0.1, "statistics": "running",
             "draws": 10, "scale": 1.0},
        ),
        (
            BatchClippingSettings,
            {"schedule": "constant", "rate_decay": 1.0, "clip": 0.095, "clip_decay": 1.0, "sigma": 0.0,
             "mini_set": None, "sampling": "fixed", "layers": "tensor", "groups": None,
             "layer_noise": "equal", "norms": "example", "public_examples": None, "note_norms": False,
             "momentum": 0.0, "local_steps": 1, "sparsify": None, "augment": "none", "side": None,
             "statistics": "public", "averaging": 0.1, "delta": 1e-5},
        ),
        (
            TanSettings,
            {"schedule": "constant", "clip": 1.0, "delta": 1e-5, "copies": 1, "augment": "none",
             "optimizer": "sgd", "momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0, "ema": 0.9999,
             "note_norms": False},
        ),
        (
            IlmSettings,
            {"schedule": "constant", "sensitivity": None, "noise_batch": None, "loss_share": 0.5,
             "exact": "nothing", "limit": None, "optimizer": "adam"},
        ),
        (
            AdlmSettings,
            {"schedule": "constant", "sensitivity": None, "noise_batch": None, "loss_share": 0.5,
             "exact": "nothing", "limit": None, "optimizer": "adam", "relevance_share": 0.25,
             "note_relevance": False},
        ),
        (params.Relevance, {"of": "train", "examples": None}),
        (
            AccountSettings,
            {"sampling": "poisson", "epochs": None, "steps": None, "parts": 1, "sets": None, "delta": 1e-5,
             "claimed_by": "clt", "order": None},
        ),
    ],
)  # fmt: skip
def test_defaults_keep_their_meaning(model: type[Strict], defaults: dict[str, Any]) -> None:
    """Digests leave defaults out: changing one here would pass old records off as made with the new one."""
    found = {name: field.default for name, field in model.model_fields.items() if not field.is_required()}
    assert found == defaults
