"""Weights that `build` loads from a file and training leaves alone: in runs, exports and predictions."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from dprepro.pipeline.identity.frozen import frozen_fingerprint, same_fingerprint
from dprepro.pipeline.results import records
from tests.laboratory import NOTHING, laboratory, new_data, new_row, refused, run, train

MODEL = """\
'''A fixed layer from a file below a trained one.'''

from safetensors.torch import load_file
from torch import load, nn, zeros


def build(model, shape, classes):
    trunk = nn.Linear(784, 32)
    content = {reads}
    trunk.load_state_dict({{key.removeprefix("trunk."): value for key, value in content.items()}})
    trunk.weight.data = trunk.weight.data + content["trunk.weight"] - content["trunk.weight"]
    trunk.bias.data = content["trunk.bias"] + zeros(32)
    trunk.requires_grad_(False)
    return nn.Sequential(nn.Flatten(), trunk, nn.ReLU(), nn.Linear(32, classes))
"""
READS = {
    "pickled": 'load("pickled.pth", weights_only=True)["network"]',
    "safe": 'load_file("safe.safetensors")',
}


def write_weights(seed: int) -> None:
    torch.manual_seed(seed)
    tensors = {f"trunk.{name}": value.detach() for name, value in nn.Linear(784, 32).named_parameters()}
    torch.save({"network": tensors, "epoch": 3}, "pickled.pth")
    save_file(tensors, "safe.safetensors")


@pytest.fixture
def frozen(tmp_path: Path) -> Iterator[Path]:
    """A laboratory with two rows whose networks have a layer from a file, trained and exported."""
    with laboratory(tmp_path, f"code: [fixedlab]\n{NOTHING}"):
        models = Path("fixedlab/models")
        models.mkdir(parents=True)
        for name, reads in READS.items():
            (models / f"{name}.py").write_text(MODEL.format(reads=reads))
        write_weights(0)
        new_data(300)
        for name in READS:
            new_row(
                f"{name} --data mine --model {name} --method dpsgd --epsilon 8 --epochs 1 "
                "--learning-rate 1 --seeds 2"
            )
        yield tmp_path


def test_a_replaced_file_is_noticed_and_changes_no_prediction(frozen: Path) -> None:
    train(*READS)
    for name in READS:
        run(f"export {name} out/{name}")
    assert "nothing to train" in run("plan pickled")
    before = run("predict out/pickled mine.npz"), run("predict out/safe mine.npz")
    trainings = records.read_run("pickled").trainings
    assert all(training.frozen for training in trainings)
    write_weights(1)
    for name in READS:
        assert f"{name}: 2 trainings (frozen tensors);" in run(f"plan {name}")
        assert "2 changed (frozen tensors): " in run("status")
        assert "trained with other frozen tensors than are here" in refused(f"export {name} again/{name}")
        records.evaluation_path(name).unlink()
        assert "trained with other frozen tensors than are here" in refused(f"evaluate {name}")
    assert (run("predict out/pickled mine.npz"), run("predict out/safe mine.npz")) == before
    write_weights(0)
    assert "nothing to train" in run("plan pickled")
    run("evaluate pickled")


def test_a_checkpoint_of_other_frozen_tensors_is_not_resumed(frozen: Path) -> None:
    shutil.copy("pickled.pth", "kept.pth")
    run("train pickled")
    first = records.read_run("pickled").trainings[0]
    write_weights(1)
    assert "2 trained, 0 stand" in run("train pickled")
    second = records.read_run("pickled").trainings[0]
    assert not same_fingerprint(first.frozen, second.frozen)
    assert first.weights != second.weights


def network(change: Callable[[nn.Sequential], object] = lambda net: None) -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(40, 30).requires_grad_(False), nn.BatchNorm1d(30), nn.Linear(30, 2))
    net.register_buffer("mask", torch.full((3, 3), -torch.inf).triu(1), persistent=False)
    with torch.no_grad():
        change(net)
    return net


def shifted(net: nn.Sequential) -> None:
    net[0].weight[3, 4] *= 1.1


def renamed(net: nn.Sequential) -> None:
    net.register_buffer("screen", net.get_buffer("mask"), persistent=False)
    del net.mask


@pytest.mark.parametrize(
    "change",
    [
        shifted,
        renamed,
        lambda net: net[0].bias.mul_(2),
        lambda net: net[0].weight.neg_(),
        lambda net: net[0].weight.copy_(net[0].weight.flip(0)),
        lambda net: net[1].num_batches_tracked.add_(1),
        lambda net: net.mask.mul_(-1),
        lambda net: net[2].requires_grad_(False),
    ],
)
def test_a_fingerprint_moves_with_any_frozen_tensor(change: Callable[[nn.Sequential], object]) -> None:
    assert not same_fingerprint(frozen_fingerprint(network()), frozen_fingerprint(network(change)))


def test_a_fingerprint_ignores_rounding_and_trained_tensors() -> None:
    same = frozen_fingerprint(network())
    for change in (
        lambda net: net[0].weight.mul_(1 + 2e-7 * torch.randn(30, 40).sign()),
        lambda net: net[2].weight.mul_(2),
    ):
        assert same_fingerprint(same, frozen_fingerprint(network(change)))
    assert frozen_fingerprint(nn.Linear(3, 2)) == ()
