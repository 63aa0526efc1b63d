"""Weights and relevances that come with prepared data: whose they are, what is refused and trained."""

import copy
import dataclasses
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from typer.testing import CliRunner

from dprepro.pipeline import params
from dprepro.pipeline.data import prepared
from dprepro.pipeline.data.prepare import prepare
from dprepro.pipeline.data.prepared import PREPARED, START, Split
from dprepro.pipeline.ledgers.rows import row_ledgers
from dprepro.pipeline.models import lenet5
from dprepro.pipeline.models.model import Model
from dprepro.pipeline.params import Settings
from dprepro.pipeline.pretrained import joining as joined
from dprepro.pipeline.pretrained import loading, starts
from dprepro.pipeline.pretrained.loading import check_joined, read_arrays, read_relevance
from dprepro.pipeline.pretrained.lrp import relevances
from dprepro.pipeline.pretrained.relevance import INFORMED, UNINFORMED, average, make_relevance, trained_net
from dprepro.pipeline.results import records
from dprepro.pipeline.results.weights import read_weights, weights_path, write_weights
from dprepro.pipeline.training import loop
from dprepro.pipeline.training import rows as training
from dprepro.stages.app import app
from tests.conftest import make_data
from tests.pretrained.conftest import (
    CPU,
    MODEL,
    PARAMS,
    PRIVATE,
    check_same_data,
    letters,
    parsed,
    train,
    write,
)
from tests.refusal import refusal_of


def trained(row: str, root: Path, settings: Settings | None = None) -> dict[str, Tensor]:
    """The row's weights, stacked over its trainings."""
    train(row, root, settings)
    run = records.read_run(row, root)
    every = [
        read_weights(
            weights_path(row, training.level, training.seed, root), training.weights, torch.device("cpu")
        )
        for training in run.trainings
    ]
    return {name: torch.stack([each[name] for each in every]) for name in every[0]}


@pytest.fixture
def started(world: Path) -> tuple[Path, dict[str, Tensor]]:
    """The world with `of-letters` trained and its start made; and its weights."""
    before = trained("of-letters", world)
    starts.make_start("tuned", parsed(), world)
    return world, before


def test_a_start_is_the_data_and_the_first_trainings_weights(
    started: tuple[Path, dict[str, Tensor]],
) -> None:
    root, before = started
    source, tuned = prepared.load("digits", root), prepared.load("tuned", root)
    check_same_data(source, tuned, "start", tuned.start)
    assert source.start is None
    weights = read_arrays(tuned.start or Path())
    assert weights.keys() == before.keys()
    assert {"1.mean", "1.var", "0.weight"} <= weights.keys()
    assert all(torch.equal(value, before[name][0]) for name, value in weights.items())
    about = tuned.manifest["start"]
    assert (about["row"], about["data"], about["seed"]) == ("of-letters", "letters", 0)
    assert about["test_examples_seen"] == 0
    assert about["config"] == parsed().row_digest("of-letters")


def test_made_again_it_has_the_same_bytes(started: tuple[Path, dict[str, Tensor]]) -> None:
    root, _ = started
    folder = root / PREPARED / "tuned"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    # as DVC may leave them
    for path in (root / PREPARED / "digits").iterdir():
        path.chmod(0o444)
    starts.make_start("tuned", parsed(), root)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert (folder / "train.inputs.npy").stat().st_mode & 0o200
    with zipfile.ZipFile(folder / START) as archive:
        # nothing of the day and of zlib's version
        assert {file.date_time for file in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert {file.compress_type for file in archive.infolist()} == {zipfile.ZIP_STORED}


def test_private_training_moves_the_linear_part_alone(started: tuple[Path, dict[str, Tensor]]) -> None:
    root, before = started
    after = trained("after", root)
    linear = {name for name in before if int(name.partition(".")[0]) >= 9}
    assert set(after) == {name for name in linear if not name.endswith((".mean", ".var"))}
    settings = parsed()
    task = loop.make_task(
        training.declared(settings.rows["after"])[-1],
        settings.rows["after"].model,
        True,
        prepared.load("tuned", root),
        CPU,
    )
    held = task.net.state_dict()
    for name in before.keys() - linear:
        assert torch.equal(held[name], before[name][0])
    for name, value in task.parameters.items():  # whatever the seed
        assert torch.equal(value, before[name][0])
        assert not torch.equal(after[name], value)


def not_made(root: Path, settings: Settings | None = None, name: str = "tuned") -> str:
    """Why there is no such start or relevance."""
    settings = settings or parsed()
    make = make_relevance if name in (*settings.relevances, "mop") else starts.make_start
    return refusal_of(lambda: make(name, settings, root))


def test_what_is_not_trained_or_not_there_can_not_be_a_start(world: Path) -> None:
    assert "of-letters.jsonl: not there; run `dprepro train of-letters` first" in not_made(world)
    assert "params.yaml: no start 'tune'; did you mean tuned" in not_made(world, name="tune")
    train("of-letters", world)
    other = parsed("of-letters", levels=[{"sigma": 0.5}])
    assert "of-letters.jsonl: trained with other settings" in not_made(world, other)
    assert "run `dprepro prepare tuned` first" in refusal_of(lambda: prepared.load("tuned", world))
    assert "run `dprepro start tuned`" in refusal_of(lambda: prepare("tuned", parsed(), world))
    data = letters()
    data.splits["train"].inputs[0] = 0
    write(data, "letters", world)
    assert "of-letters.jsonl: trained with other data than are here; run `dprepro" in not_made(world)
    assert not (world / PREPARED / "tuned").exists()


@pytest.mark.parametrize(
    ("split", "seen"), [("train", "train"), ("validation", "train"), ("train", "public")]
)
def test_weights_that_saw_a_private_example_are_not_public(world: Path, split: str, seen: str) -> None:
    """CIFAR-10 and CIFAR-100, say, share images though neither is an edition of the other."""
    digits = prepared.load("digits", world)
    data = letters()
    data.splits[seen].inputs[[3, 5]] = digits.splits[split].inputs[[0, 7]]
    write(data, "letters", world)
    train("of-letters", world)
    assert not_made(world) == (
        "params.yaml: starts.tuned.row: 'of-letters' was trained with 2 of the examples that are private in "
        "'digits'; allowed: rows on other data"
    )
    assert not (world / PREPARED / "tuned").exists()


def test_test_examples_that_the_weights_saw_are_counted(world: Path) -> None:
    data = letters()
    data.splits["train"].inputs[:3] = prepared.load("digits", world).splits["test"].inputs[:3]
    # nothing is trained on these
    data.splits["test"].inputs[:] = prepared.load("digits", world).splits["test"].inputs
    write(data, "letters", world)
    train("of-letters", world)
    starts.make_start("tuned", parsed(), world)
    assert prepared.load("tuned", world).manifest["start"]["test_examples_seen"] == 3


@pytest.mark.parametrize(
    ("part", "name", "row", "what"),
    [
        ("start", "tuned", "of-letters", "weights of another pretraining"),
        ("relevance", "map", "of-digits", "other relevances"),
    ],
)
def test_what_is_joined_is_what_is_meant(world: Path, part: str, name: str, row: str, what: str) -> None:
    """Not that of another network; none where there should be some; and some where there should be none."""
    train(row, world)
    make = {"start": starts.make_start, "relevance": make_relevance}[part]
    make(name, parsed(), world)
    joined, digits = prepared.load(name, world), prepared.load("digits", world)
    for fine in (joined, digits):
        check_joined(fine, parsed())
    for wrong, meant, command in (
        (joined, parsed(row, seeds=3), part),
        (dataclasses.replace(digits, name=name), parsed(), part),
        (dataclasses.replace(joined, name="digits"), parsed(), "prepare"),
    ):
        assert refusal_of(partial(check_joined, wrong, meant)) == (
            f"data/prepared/{wrong.name}: {what} than params.yaml has now; "
            f"run `dprepro {command} {wrong.name}`"
        )


def lenet(normalization: str = "running_bn", classes: int = 10) -> nn.Module:
    model = Model(name="lenet5", normalization=normalization)
    return lenet5.build(model, (1, 28, 28), classes)


def save(net: nn.Module, path: Path) -> dict[str, Tensor]:
    weights = {name: value + 0.125 for name, value in net.state_dict().items()}
    np.savez(path, **{name: value.numpy() for name, value in weights.items()})
    return weights


@pytest.mark.parametrize("which", ["all", "linear"])
def test_another_number_of_classes_leaves_the_output_layer_fresh(tmp_path: Path, which: str) -> None:
    saved = save(lenet(classes=12), tmp_path / START)
    net = lenet()
    fresh = {name: value.clone() for name, value in net.state_dict().items()}
    loading.load_start(net, tmp_path / START, which)
    for name, value in net.state_dict().items():
        output = name.startswith(("15.", "16."))
        assert torch.equal(value, fresh[name] if output else saved[name])
    frozen = {name for name, value in net.named_parameters() if not value.requires_grad}
    convolutions = {f"{number}.{kind}" for number in "0145" for kind in ("weight", "bias")}
    assert frozen == (set() if which == "all" else convolutions)


@pytest.mark.parametrize(
    ("saved", "net", "which", "line"),
    [
        (lenet("none"), lenet("layer"), "linear", "1.bias: only in one of the two"),
        (lenet("layer"), lenet("running_bn"), "linear", "1.mean: only in one of the two"),
        (lenet("running_bn"), lenet("layer"), "linear", "1.mean: only in one of the two"),
        (lenet("layer"), lenet("none"), "all", "1.bias: only in one of the two"),
        (nn.Sequential(nn.Linear(3, 3)), lenet("none"), "all", "none fits"),
    ],
)
def test_weights_of_another_network_are_refused(
    tmp_path: Path, saved: nn.Module, net: nn.Module, which: str, line: str
) -> None:
    save(saved, tmp_path / START)
    before = copy.deepcopy(net.state_dict())
    refused = refusal_of(lambda: loading.load_start(net, tmp_path / START, which))
    assert f"start.npz: weights of another network: {line}" in refused
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def of_tutorial(features: bool, trainable: str = "linear", **after: Any) -> Settings:
    """PARAMS with a network whose convolutions can be left out, and changes to the row that is fine-tuned."""
    raw = copy.deepcopy(PARAMS)
    raw["starts"]["tuned"]["features"] = features
    for row in raw["rows"].values():
        row["model"]["name"] = "tf_tutorial"
    raw["rows"]["after"]["model"]["trainable"] = trainable
    raw["rows"]["after"].update(after)
    return params.parse(raw)


def test_training_on_features_is_training_behind_frozen_convolutions(world: Path) -> None:
    slow, fast = of_tutorial(False), of_tutorial(True)
    train("of-letters", world, slow)
    starts.make_start("tuned", slow, world)
    expected = trained("after", world, slow)
    starts.make_start("tuned", fast, world)
    data = prepared.load("tuned", world)
    assert data.input_shape == fast.rows["after"].model.features_shape == (2304,)
    assert data.manifest["start"]["config"] == fast.start_digest("tuned") != slow.start_digest("tuned")
    actual = trained("after", world, fast)
    assert actual.keys() == {name for name in expected if name.startswith("classifier.")}
    for name, value in actual.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-6)
    row_ledgers("after", fast, world)  # what was spent is what settings come to


def test_features_need_the_statistics_of_batch_norm(world: Path) -> None:
    """Rows of `dpsgd` with batch norm measure statistics at test time, and keep none."""
    raw = copy.deepcopy(PARAMS)
    raw["rows"]["of-letters"] = {**PRIVATE, "data": "letters"}
    for row in raw["rows"].values():
        row["model"] = {**row["model"], "name": "tf_tutorial"}
    raw["starts"]["tuned"]["features"] = True
    settings = params.parse(raw)
    train("of-letters", world, settings)
    line = refusal_of(lambda: starts.make_start("tuned", settings, world))
    assert "features.2.mean: not kept with the weights" in line


def test_features_are_for_networks_that_can_be_divided_and_rows_that_train_the_rest() -> None:
    raw = copy.deepcopy(PARAMS)
    raw["starts"]["tuned"]["features"] = True
    line = refusal_of(lambda: params.parse(raw))
    assert "features: 'of-letters' trains 'lenet5'; allowed with features: rows of tf_tutorial" in line
    line = refusal_of(lambda: of_tutorial(True, trainable="all"))
    assert "only features, for linear layers; allowed: 'linear'" in line
    before = PARAMS["rows"]["of-letters"]
    augmented: dict[str, Any] = {
        "model": before["model"] | {"name": "tf_tutorial", "trainable": "linear"},
        "method": before["method"],
        "settings": before["settings"] | {"augment": "crop_flip"},
        "levels": before["levels"],
    }
    line = refusal_of(lambda: of_tutorial(True, **augmented))
    assert "augment: is for images, and 'tuned' has features" in line


@pytest.fixture
def mapped(world: Path) -> Path:
    """The world with `of-digits` trained and its relevances made."""
    train("of-digits", world)
    make_relevance("map", parsed(), world)
    return world


def test_it_is_the_data_and_the_average_over_training_examples(mapped: Path) -> None:
    source, data = prepared.load("digits", mapped), prepared.load("map", mapped)
    check_same_data(source, data, "relevance", data.relevance)
    assert source.relevance is None
    # the first training's network, with its running statistics, one example at a time
    path = weights_path("of-digits", "sigma=0", 0, mapped)
    net = lenet5.build(Model(**MODEL), (1, 28, 28), 10)
    net.load_state_dict(load_file(path))
    assert not torch.equal(net[1].mean, torch.zeros(6))
    each = [
        relevances(net, torch.tensor(image / 255).float()[None])[0] for image in source.splits["train"].inputs
    ]
    relevance = read_relevance(data, CPU.device)
    assert relevance.mean.dtype == torch.float64
    torch.testing.assert_close(relevance.mean, torch.stack(each).double().mean(0), rtol=1e-4, atol=1e-5)
    assert relevance.mean.std() > 0.01
    assert (relevance.examples, relevance.informed) == (60, True)
    assert data.manifest["relevance"] == {
        "row": "of-digits",
        "config": parsed().relevance_digest("map"),
        "model": parsed().rows["of-digits"].model.model_dump(mode="json"),
        "data": "digits",
        "edition": {"mnist": "official", "cifar100": "official"},
        "level": "sigma=0",
        "seed": 0,
        "of": "train",
        "examples": 60,
        "informed": True,
        "test_examples_seen": 0,
        "note": INFORMED,
    }


def test_a_network_that_saw_another_form_of_the_private_images_is_informed(world: Path) -> None:
    """A comparison of contents can't find them; the declaration says what they are."""
    train("of-letters", world)
    settings = parsed()
    edition = {"catalogued": {**settings.catalogued, "kmnist": params.Raw(of="mnist")}}
    make_relevance("strange", settings.model_copy(update=edition), world)
    about = prepared.load("strange", world).manifest["relevance"]
    assert (about["informed"], about["note"]) == (True, INFORMED)


def test_a_network_that_saw_other_images_is_not_informed(world: Path) -> None:
    digits = prepared.load("digits", world)
    train("of-letters", world)
    make_relevance("strange", parsed(), world)
    data = prepared.load("strange", world)
    about = data.manifest["relevance"]
    assert (about["informed"], about["note"], about["examples"]) == (False, UNINFORMED, 5)
    relevance = read_relevance(data, CPU.device)
    assert (relevance.examples, relevance.informed) == (5, False)
    net = trained_net(joined.trained_row("of-letters", parsed(), world))
    images = digits.splits["train"].inputs[:5]
    assert np.array_equal(relevance.mean.numpy(), average(net, images, CPU.device))


def test_what_a_network_started_from_counts_too(mapped: Path) -> None:
    """Trained on letters, it has its convolutions from digits."""
    starts.make_start("tuned-letters", parsed(), mapped)
    train("tuning", mapped)
    make_relevance("late", parsed(), mapped)
    assert prepared.load("late", mapped).manifest["relevance"]["informed"]
    late, other = (read_relevance(prepared.load(name, mapped), CPU.device) for name in ("late", "map"))
    assert not torch.allclose(late.mean, other.mean)


def test_what_can_not_be_made_is_one_line(world: Path) -> None:
    assert "params.yaml: no relevance 'mop'; did you mean map" in not_made(world, name="mop")
    assert "run `dprepro prepare map` first" in refusal_of(lambda: prepared.load("map", world))
    assert "run `dprepro relevance map`" in refusal_of(lambda: prepare("map", parsed(), world))
    train("of-digits", world)
    train("sharing", world)
    line = not_made(world, name="shared")
    assert "seed=0.safetensors: 1.mean: not kept with the weights; allowed: rows with" in line
    path, run = weights_path("of-digits", "sigma=0", 0, world), records.read_run("of-digits", world)
    weights = load_file(path)
    weights["0.weight"] *= torch.nan
    broken = run.trainings[0].model_copy(update={"weights": write_weights(path, weights)})
    records.write(run.model_copy(update={"trainings": (broken, *run.trainings[1:])}), world)
    assert "sigma=0,seed=0.safetensors: relevances to it are not finite" in not_made(world, name="map")
    assert not (world / PREPARED / "map").exists()


def test_a_network_for_other_images_is_refused(world: Path) -> None:
    data = make_data(60, 10, 10)
    colours = {name: Split(each.inputs.repeat(3, axis=1), each.labels) for name, each in data.splits.items()}
    write(dataclasses.replace(data, splits=colours), "colours", world)
    train("of-colours", world)
    assert not_made(world, name="grey") == (
        "params.yaml: relevances.grey.row: 'of-colours' is for images of shape (3, 28, 28), and those of "
        "'digits' have (1, 28, 28); allowed: rows on such images"
    )


def test_the_command(mapped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(mapped)
    monkeypatch.setattr(params, "load", parsed)
    done = CliRunner().invoke(app, ["relevance", "map", "--device", "cpu"])
    assert done.output == "data/prepared/map: relevances to of-digits\n"
