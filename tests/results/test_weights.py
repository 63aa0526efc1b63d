"""Weights, a file a training, read back bit by bit or refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from dprepro.accountants.records import MACHINE_TOLERANCE
from dprepro.errors import UserError
from dprepro.pipeline.files import digest_file
from dprepro.pipeline.params import Settings, load
from dprepro.pipeline.results import records
from dprepro.pipeline.results.weights import read_weights, weights_path, write_weights
from tests.not_none import not_none

CPU = torch.device("cpu")
MODEL = {
    "0.weight": torch.randn(3, 2, 5, 5).to(memory_format=torch.channels_last),
    "0.bias": torch.tensor([float("nan"), 1e-42, -0.0]),
    "low": torch.tensor(0.5),
}


def test_what_is_written_is_read_back_bit_by_bit(tmp_path: Path) -> None:
    path = weights_path("row", "epsilon=0.5", 0, tmp_path)
    assert path.name == "epsilon=0.5,seed=0.safetensors"
    said = write_weights(path, MODEL)
    assert digest_file(path) == said
    tensors = read_weights(path, said, CPU)
    assert tensors.keys() == MODEL.keys()
    for name, value in MODEL.items():
        assert torch.equal(tensors[name].view(torch.int32), value.contiguous().view(torch.int32))


@pytest.mark.parametrize("content", [b"\xff" * 20, b""])
def test_no_weights_are_a_line_though_something_vouches_for_them(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    with pytest.raises(UserError, match="no weights") as problem:
        read_weights(path, digest_file(path), CPU)
    assert "\n" not in str(problem.value)


ROOT = Path(__file__).parents[2]
PUBLISHED: dict[str, list[Any]] = json.loads(Path(__file__).with_name("published_numbers.json").read_text())


@pytest.fixture(scope="module")
def settings() -> Settings:
    return load(ROOT / "params.yaml")


@pytest.mark.parametrize("key", PUBLISHED)
def test_a_published_number_stands(key: str, settings: Settings) -> None:
    record = not_none(records.read(key, settings.lines[key], ROOT))
    trainings = {(training.level, training.seed): training for training in record.trainings}
    for level, seed, accuracy, claimed, epsilon_upper in PUBLISHED[key]:
        training = trainings[level, seed]
        assert training.metrics.get("test_accuracy") == accuracy
        for now, then in ((training.ledger.claimed, claimed), (training.ledger.epsilon_upper, epsilon_upper)):
            assert (now is None) == (then is None)
            assert now is None or then <= now <= then * (1 + MACHINE_TOLERANCE)
