"""A network by itself computes what the trained one computes, of every method and model."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pipeline import params
from pipeline.data.catalog import catalog
from pipeline.export.networks import CPU, Architecture, Network, probe, rebuilt, same, tensors_of
from pipeline.methods.base import Relevances
from pipeline.methods.registry import build_method
from pipeline.training.loop import Replica, make_task
from tests.methods.examples import made_up

BROAD = params.load(Path(__file__).parents[1] / "broad/params.yaml")
IMAGES_OR_TEXTS = [key for key, row in BROAD.rows.items() if not BROAD.has_features(row.data)]
JOINED = {"batch-bn"}  # whose examples are joined with public images at test


@pytest.mark.parametrize("key", IMAGES_OR_TEXTS)
def test_the_weights_and_the_settings_are_enough(key: str, tmp_path: Path) -> None:
    row = BROAD.rows[key]
    raw = BROAD.split(row.data).raw
    data = made_up(row.model, catalog()[BROAD.raw[raw].of or raw].shape, tmp_path)
    settings = row.resolved[0].changed({"batch": 4})
    member = Replica(row.level(settings), 0, settings)
    task = make_task([member], row.model, True, data, CPU)
    if row.data in BROAD.relevances:
        public = BROAD.relevances[row.data].of == "public"
        task = replace(task, relevance=Relevances(torch.rand(task.inputs.shape[1:]), 6, public, not public))
    method = build_method(row.method, task, [settings], row.model.normalization)
    with torch.no_grad():
        away = {name: value + 0.05 * torch.randn_like(value) for name, value in task.parameters.items()}
        state = method.init() | {"parameters": away}
        state |= {"average": away} if "average" in state else {}
        trained = Network(task.net, method, method.network(method.model(state), 0))
    architecture = Architecture(
        model=row.model,
        method=row.method,
        settings=settings.model_dump(mode="json"),
        examples=6,
        shape=data.input_shape,
        classes=tuple(data.manifest["classes"]),
    )
    wanted = probe(architecture, trained)
    kept = {name: value.clone() for name, value in tensors_of(trained).items()}
    own = rebuilt(architecture, kept)
    assert same(wanted, probe(architecture, own)) == (key not in JOINED)
    # the whole of it matters: a network with other weights is another
    other = rebuilt(architecture, {name: value + 0.1 for name, value in kept.items()})
    assert not same(wanted, probe(architecture, other))
