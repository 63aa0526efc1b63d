"""What packs say of relevances, and tensors of their weights besides parameters."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from dprepro.clipping.normalization import initial_statistics
from dprepro.errors import UserError
from dprepro.pipeline import params
from dprepro.pipeline.data.prepared import Prepared, Split
from dprepro.pipeline.methods.spending import Statement
from dprepro.pipeline.models.networks import build_net
from dprepro.pipeline.results.records import read_run
from dprepro.pipeline.transport import adopting, networks
from dprepro.pipeline.transport.networks import check_network

REPO = Path(__file__).parents[2]
DECLARED = params.load(REPO / "params.yaml")
INFORMED, PUBLIC, TESTED = "informed_relevance", "public_relevance", "test_relevance"


@pytest.mark.parametrize(
    ("here", "recorded", "lacks"),
    [
        (None, {INFORMED}, None),
        (None, {PUBLIC}, None),
        (None, set(), INFORMED),
        ({"informed": True, "test_examples_seen": 0}, {INFORMED}, None),
        ({"informed": True, "test_examples_seen": 0}, {PUBLIC}, INFORMED),
        ({"informed": False, "test_examples_seen": 0}, {INFORMED}, PUBLIC),
        ({"informed": True, "test_examples_seen": 9}, {INFORMED}, TESTED),
    ],
)
def test_a_pack_says_of_the_relevances_what_the_data_here_say(
    here: dict[str, Any] | None, recorded: set[str], lacks: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without prepared data, params.yaml doesn't decide between a network of public and of private data."""
    monkeypatch.chdir(REPO)
    run = read_run("phan-f4b-adlm-planned")
    assert run is not None
    training = run.trainings[0]
    values: dict[str, Any] = {"row": "phan-pretrained", "data": "mnist"}
    statements = tuple(Statement(key=key, values=values) for key in sorted(recorded))
    training = training.model_copy(update={"not_covered": statements})
    data = Prepared(
        "mnist", {"public": Split(np.empty(0), np.empty(0))}, {"relevance": {**values, **(here or {})}}
    )
    monkeypatch.setattr(adopting.prepared, "manifest_here", lambda _: None if here is None else data.manifest)
    monkeypatch.setattr(adopting.prepared, "load", lambda _: data)
    if lacks is None:
        adopting._check_statements(training, DECLARED)
    else:
        with pytest.raises(UserError, match=f"lacks '{lacks}'"):
            adopting._check_statements(training, DECLARED)


BATCH_NORM, LAPLACE = "davody-t2-bn-lenet-300-100", "phan-f4a-ilm-sound-reduced"


def check(row: str, tensors: dict[str, torch.Tensor], folder: Path) -> None:
    """Compare tensors, as weights of a pack, with the network of a declared row."""
    declared = DECLARED.rows[row]
    training: Any = SimpleNamespace(
        settings=declared.resolved[-1].model_dump(mode="json"),
        method=declared.method,
        data=declared.data,
        model=declared.model.model_dump(mode="json"),
    )
    path = folder / "weights.safetensors"
    safetensors.torch.save_file(tensors, path)
    check_network(path, training, DECLARED)


@pytest.mark.parametrize(
    ("row", "change", "line"),
    [
        (BATCH_NORM, {"2.var": -torch.ones(300)}, "impossible: '2.var' has a negative variance"),
        (BATCH_NORM, {"2.var": None}, "another network's: '2.var' is missing"),
        (BATCH_NORM, {"2.mean": torch.zeros(299)}, "another network's: '2.mean' doesn't fit"),
        (BATCH_NORM, {"low": torch.zeros(10)}, "another network's: 'low' is not of it"),
        (BATCH_NORM, {"1.weight": None}, "another network's: '1.weight' is missing"),
        (LAPLACE, {"low": torch.ones(25)}, "impossible: 'low' is above 'high'"),
        (LAPLACE, {"high": None}, "another network's: 'high' is missing"),
        (LAPLACE, {"high": torch.ones(24)}, "another network's: 'high' doesn't fit"),
        (LAPLACE, {"bias_factor": torch.tensor(torch.nan)}, "not finite: 'bias_factor'"),
    ],
)
def test_tensors_besides_parameters_are_those_of_the_method(
    tmp_path: Path, row: str, change: dict[str, torch.Tensor | None], line: str
) -> None:
    """Statistics of batch norm, and the extremes of a Laplace mechanism's units."""
    net = build_net(DECLARED.rows[row].model, (1, 28, 28), 10)
    tensors = {name: value.detach() for name, value in net.named_parameters()} | initial_statistics(net)
    if row == LAPLACE:
        tensors |= {"low": torch.zeros(25), "high": torch.ones(25) / 2, "bias_factor": torch.tensor(1.0)}
    check(row, tensors, tmp_path)
    changed = {name: value for name, value in (tensors | change).items() if value is not None}
    with pytest.raises(UserError, match=line):
        check(row, changed, tmp_path)


def test_frozen_parameters_are_not_in_a_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = build_net(DECLARED.rows[BATCH_NORM].model, (1, 28, 28), 10)
    frozen, *trained = net.named_parameters()
    frozen[1].requires_grad_(False)
    monkeypatch.setattr(networks, "build_net", lambda *_: net)
    check(BATCH_NORM, {name: value.detach() for name, value in trained}, tmp_path)
