"""A network by itself computes what the trained one computes, of every method and model."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.func import functional_call

from dprepro.errors import UserError
from dprepro.pipeline import params
from dprepro.pipeline.data.catalog import catalog
from dprepro.pipeline.data.prepared import Prepared, Split
from dprepro.pipeline.export.inputs import Preparation, read_inputs
from dprepro.pipeline.export.networks import (
    CPU,
    Architecture,
    Network,
    fits,
    probe,
    rebuilt,
    same,
    tensors_of,
)
from dprepro.pipeline.methods.base import Relevances
from dprepro.pipeline.models.model import Model
from dprepro.pipeline.training.loop import SeedRun, make_task
from tests.methods.examples import made_up

BROAD = params.load(Path(__file__).parents[1] / "broad/params.yaml")
IMAGES_OR_TEXTS = [key for key, row in BROAD.rows.items() if not BROAD.has_features(row.data)]
JOINED = {"batch-bn"}  # whose examples are joined with public images at test


@pytest.mark.parametrize("key", IMAGES_OR_TEXTS)
def test_the_weights_and_the_settings_are_enough(key: str, tmp_path: Path) -> None:
    raw = BROAD.split(BROAD.rows[key].data).raw
    data = made_up(BROAD.rows[key].model, catalog()[BROAD.raw[raw].of or raw].shape, tmp_path)
    trained, architecture = trained_on(key, data)
    wanted = probe(architecture, trained)
    kept = {name: value.clone() for name, value in tensors_of(trained).items()}
    assert fits(architecture, sum(value.numel() * value.element_size() for value in kept.values()))
    net = rebuilt(architecture, kept)
    assert same(wanted, probe(architecture, net)) == (key not in JOINED)
    # the whole of it matters: a network with other weights is another
    other = rebuilt(architecture, {name: value + 0.1 for name, value in kept.items()})
    assert not same(wanted, probe(architecture, other))


def trained_on(key: str, data: Prepared) -> tuple[Network, Architecture]:
    """A network of a row, away from where it begins, and what computes it."""
    row = BROAD.rows[key]
    settings = row.resolved[0].changed({"batch": 4})
    task = make_task(SeedRun(row.level(settings), 0, settings), row.model, True, data, CPU)
    if row.data in BROAD.relevances:
        task = replace(task, relevance=Relevances(torch.rand(task.inputs.shape[1:]), 6, informed=True))
    method = settings.build_method(task, row.model.normalization)
    with torch.no_grad():
        moved = {name: value + 0.05 * torch.randn_like(value) for name, value in task.parameters.items()}
        state = method.init() | {"parameters": moved}
        state |= {"average": moved} if "average" in state else {}
        trained = Network(task.net, method, method.network(method.model(state), 0))
    architecture = Architecture(
        model=row.model,
        method=row.method,
        settings=settings.model_dump(mode="json"),
        examples=6,
        shape=data.input_shape,
        classes=tuple(data.manifest["classes"]),
        floats=data.splits["train"].inputs.dtype == np.float32,
    )
    return trained, architecture


@pytest.mark.parametrize(
    ("key", "model", "shape", "changes"),
    [
        # its average over all pixels needs the same weights for images of any size
        ("convnet", None, (3, 200_000, 200_000), {}),
        ("convnet", None, (3, 32, 32), {"side": 200_000}),
        # near every unit of a hidden layer are constants for all others
        ("none", Model(name="mlp", normalization="response", hidden=(300_000,)), (1, 1, 1), {}),
    ],
)
def test_a_forged_architecture_takes_no_memory(
    key: str, model: Model | None, shape: tuple[int, ...], changes: dict[str, int]
) -> None:
    row = BROAD.rows[key]
    architecture = Architecture(
        model=model or row.model,
        method=row.method,
        settings=row.resolved[0].model_dump(mode="json") | changes,
        examples=10,
        shape=shape,
        classes=("a", "b"),
    )
    assert not fits(architecture, 64 << 20)


def test_features_stay_floats(tmp_path: Path) -> None:
    """Of the shape of images, which as bytes would be divided by 255."""
    generator = np.random.default_rng(0)
    split = Split(generator.random((6, 1, 28, 28), dtype=np.float32), np.arange(6) % 4)
    splits = dict.fromkeys(("train", "public"), split)
    manifest = {"classes": list("abcd"), "digests": {}, "raw": {}, "input_shape": (1, 28, 28)}
    trained, architecture = trained_on("none", Prepared("features", splits, manifest))
    assert architecture.stored == ((1, 28, 28), torch.float32)
    network = rebuilt(architecture, tensors_of(trained))
    assert same(probe(architecture, trained), probe(architecture, network))
    inputs = torch.from_numpy(split.inputs)
    expected = functional_call(trained.net, trained.tensors, (inputs,))
    torch.testing.assert_close(network.logits(inputs), expected)

    np.savez(tmp_path / "some.npz", inputs=2 * split.inputs)
    np.savez(tmp_path / "bytes.npz", inputs=(255 * split.inputs).astype(np.uint8))
    (tmp_path / "image.png").write_bytes(b"")
    clipped = Preparation(clip=(0.0, 1.0))
    read = read_inputs(tmp_path / "some.npz", (1, 28, 28), True, clipped, {}).inputs
    assert np.array_equal(read, (2 * split.inputs).clip(0, 1))
    for name, floats, said in (
        ("some.npz", False, "is float32; the network takes whole numbers"),
        ("bytes.npz", True, "is uint8; the network takes floats"),
        ("image.png", True, "the network takes features"),
    ):
        with pytest.raises(UserError, match=said):
            read_inputs(tmp_path / name, (1, 28, 28), floats, clipped, {})
