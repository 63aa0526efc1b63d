"""Relevances that come with prepared data: whose they are, what is said of them, and what is refused."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from dprepro.pipeline import params
from dprepro.pipeline.data import prepared
from dprepro.pipeline.data.prepare import prepare
from dprepro.pipeline.data.prepared import PREPARED, Split
from dprepro.pipeline.models import lenet5
from dprepro.pipeline.models.model import Model
from dprepro.pipeline.pretrained import joining as joined
from dprepro.pipeline.pretrained import starts
from dprepro.pipeline.pretrained.loading import read_relevance
from dprepro.pipeline.pretrained.lrp import relevances
from dprepro.pipeline.pretrained.relevance import INFORMED, UNINFORMED, average, make_relevance, trained_net
from dprepro.pipeline.results import records
from dprepro.pipeline.results.weights import weights_path, write_weights
from dprepro.stages.app import app
from tests.conftest import make_data
from tests.not_none import not_none
from tests.pretrained.conftest import MODEL, check_same_data, parsed, train, write
from tests.refusal import refusal_of

CPU = torch.device("cpu")


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
    relevance = not_none(read_relevance(data, CPU))
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
    relevance = not_none(read_relevance(data, CPU))
    assert (relevance.examples, relevance.informed) == (5, False)
    net = trained_net(joined.trained_row("of-letters", parsed(), world))
    images = digits.splits["train"].inputs[:5]
    assert np.array_equal(relevance.mean.numpy(), average(net, images, CPU))


def test_what_a_network_started_from_counts_too(mapped: Path) -> None:
    """Trained on letters, it has its convolutions from digits."""
    starts.make_start("tuned-letters", parsed(), mapped)
    train("tuning", mapped)
    make_relevance("late", parsed(), mapped)
    assert prepared.load("late", mapped).manifest["relevance"]["informed"]
    late, other = (not_none(read_relevance(prepared.load(name, mapped), CPU)) for name in ("late", "map"))
    assert not torch.allclose(late.mean, other.mean)


def not_made(name: str, root: Path) -> str:
    return refusal_of(lambda: make_relevance(name, parsed(), root))


def test_what_can_not_be_made_is_one_line(world: Path) -> None:
    assert "params.yaml: no relevance 'mop'; did you mean map" in not_made("mop", world)
    assert "run `dprepro prepare map` first" in refusal_of(lambda: prepared.load("map", world))
    assert "run `dprepro relevance map`" in refusal_of(lambda: prepare("map", parsed(), world))
    train("of-digits", world)
    train("sharing", world)
    line = not_made("shared", world)
    assert "seed=0.safetensors: 1.mean: not kept with the weights; allowed: rows with" in line
    path, run = weights_path("of-digits", "sigma=0", 0, world), not_none(records.read_run("of-digits", world))
    weights = load_file(path)
    weights["0.weight"] *= torch.nan
    broken = run.trainings[0].model_copy(update={"weights": write_weights(path, weights)})
    records.write(run.model_copy(update={"trainings": (broken, *run.trainings[1:])}), world)
    assert "sigma=0,seed=0.safetensors: relevances to it are not finite" in not_made("map", world)
    assert not (world / PREPARED / "map").exists()


def test_a_network_for_other_images_is_refused(world: Path) -> None:
    data = make_data(60, 10, 10)
    colours = {name: Split(each.inputs.repeat(3, axis=1), each.labels) for name, each in data.splits.items()}
    write(dataclasses.replace(data, splits=colours), "colours", world)
    train("of-colours", world)
    assert not_made("grey", world) == (
        "params.yaml: relevances.grey.row: 'of-colours' is for images of shape (3, 28, 28), and those of "
        "'digits' have (1, 28, 28); allowed: rows on such images"
    )


def test_the_command(mapped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(mapped)
    monkeypatch.setattr(params, "load", parsed)
    done = CliRunner().invoke(app, ["relevance", "map", "--device", "cpu"])
    assert done.output == "data/prepared/map: relevances to of-digits\n"
